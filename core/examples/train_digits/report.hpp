// SPDX-License-Identifier: Apache-2.0
//
// The report at the end of train_digits, and the files in which a final loss is kept.
#pragma once

#include <string>
#include <tutti/tutti.hpp>

// Prints which algorithm and transports served which collective, with calls, bytes and time of this rank.
void print_services(const tutti::Communicator& world);

// Throws unless `transport`, and no other, served every kind of call made so far.
void require_transport(const tutti::Communicator& world, const std::string& transport);

// One number, written with 17 digits, so that it reads back as the same double. Throw with the file's name.
void write_loss(const std::string& path, double loss);
double read_loss(const std::string& path);

// Throws unless `loss` agrees with `expected` (from `path`) to 1e-5 of it; else prints the relative difference.
void require_loss(double loss, double expected, const std::string& path);
