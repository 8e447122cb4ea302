// What a driver says that it cannot do, in one place. Tests that ask for it skip there, with the reason (ze_test.cpp).
#pragma once

#include <level_zero/ze_api.h>

#include <string_view>

namespace zefuse::test {

// Why this driver does not do what the test `name` ("Suite.Test") asks for; null: it does. docs/cuda_driver.md has the
// reasons for users.
const char* whyRefused(ze_driver_handle_t driver, std::string_view name);

}  // namespace zefuse::test
