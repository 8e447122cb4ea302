// What libzefuse_core.so.1 shows to those who link it (core/CMakeLists.txt); all else in it is hidden.
#pragma once

#define ZEFUSE_API __attribute__((visibility("default")))
