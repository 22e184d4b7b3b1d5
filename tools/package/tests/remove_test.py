#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Removes what install_test.py made."""
import shutil

import installed

if installed.NOTE.is_file():
    shutil.rmtree(installed.folder(), ignore_errors=True)
    installed.NOTE.unlink()
