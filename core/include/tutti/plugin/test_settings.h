/* SPDX-License-Identifier: Apache-2.0
 *
 * test_settings/1: an optional interface of a plugin. It lists numeric settings that a conformance suite may set, so
 * that rare states come soon: rings of one slot, the smallest fragment, partial reads and writes, counters that start
 * shortly before they wrap.
 *
 * get_interface returns a text (const tutti_test_settings*) that lives as long as the process, with a line for each
 * setting:
 *
 *   NAME LEAST MOST STEP
 *
 * as in "TUTTI_MINE_SLOTS 1 8 1". Every value LEAST + k * STEP up to MOST keeps the contract. Any other value is
 * refused by query or open_domain, with an error that names the setting. The plugin reads the settings by get_config in
 * query, open_domain and open_endpoint, not before. All ranks have equal values.
 *
 * A setting that exists for tests alone has TEST in its name.
 */
#ifndef TUTTI_PLUGIN_TEST_SETTINGS_H
#define TUTTI_PLUGIN_TEST_SETTINGS_H

#define TUTTI_TEST_SETTINGS_ID "tutti.test_settings/1"

typedef char tutti_test_settings; /* the interface: the text's characters, ended by 0 */

#endif
