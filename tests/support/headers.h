// headers.h: what most tests include, compiled once for all of them. Each test includes what it needs all the same.
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
