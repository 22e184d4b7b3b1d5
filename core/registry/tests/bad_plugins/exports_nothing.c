/* SPDX-License-Identifier: Apache-2.0
 * A shared library that is no plugin. */
extern int tutti_is_elsewhere;
int tutti_is_elsewhere = 1;
