// The program in which a Level Zero loader and the drivers it finds are started first: they may hang or crash without
// harm to its caller. zefuse-try-loader LIBRARY; its answer is a line of the prefix and one of the words, with details
// behind it, among whatever the drivers print.
#pragma once

namespace zefuse::ze {

inline constexpr const char* loader_trial_program = "zefuse-try-loader";  // beside the libraries that start it

inline constexpr const char* trial_prefix = "zefuse-try-loader: ";
inline constexpr const char* trial_works = "works";
inline constexpr const char* trial_no_library = "no-library";
inline constexpr const char* trial_no_driver = "no-driver";
inline constexpr unsigned trial_ends_after_s = 60;  // by itself, should its caller go away meanwhile

}  // namespace zefuse::ze
