// SPDX-License-Identifier: Apache-2.0
//
// Included before each file of a wheel, which runs with the libstdc++ of manylinux_2_34 (GLIBCXX_3.4.29). Of newer symbols one is
// used, std::condition_variable::wait of GLIBCXX_3.4.30; its older version does the same.
#pragma once

__asm__(
    ".symver _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE, "
    "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE@GLIBCXX_3.4.11");
