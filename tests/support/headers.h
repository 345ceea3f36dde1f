/* SPDX-License-Identifier: Apache-2.0 */
// headers.h: headers that most tests include, precompiled once for all of them. Each test still includes what it needs.
#ifndef ZOFF_HEADERS_H
#define ZOFF_HEADERS_H

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#endif
