// SPDX-License-Identifier: Apache-2.0
//
// The meeting socket of a connection: letters in both directions, without blocking. It stays open as long as the comm,
// so that the end of a process is noticed whatever the transport is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/sdk/file_descriptor.hpp>

#include "wire.hpp"

namespace tutti::nccl::serve {

class Mailbox {
 public:
  struct Letter {
    LetterKind kind;
    std::string body;
  };
  Mailbox() = default;
  // A connected socket.
  explicit Mailbox(FileDescriptor socket);

  // False: no room, or the connection is over.
  bool put(LetterKind kind, std::string_view body);
  // Moves what the socket takes and has.
  void advance();
  // The next whole letter.
  std::optional<Letter> take();
  // Nothing more comes, except what take() still returns; problem() says why.
  bool is_over() const { return !problem_.empty(); }
  const std::string& problem() const { return problem_; }
  int socket() const { return socket_.get(); }

 private:
  void write_some();
  void read_some();
  FileDescriptor socket_;
  std::string in_, out_;
  std::string problem_;
};

}  // namespace tutti::nccl::serve
