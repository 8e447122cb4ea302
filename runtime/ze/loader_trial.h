// The program in which a Level Zero loader and the drivers it finds are started first: they may hang or crash without
// harm to its caller.
//
//   zefuse-try-loader LIBRARY                  does zeInit return?
//   zefuse-try-loader --list LIBRARY [DRIVER]  and what is there (`zefuse doctor`): with that driver alone
//
// Its answer is a line of the prefix and one of the words, with details behind it, among whatever the drivers print.
// With
// --list, lines of the prefix and of the words below come before it, each as soon as it is known, so that one who was
// left without an answer knows how far it came.
#pragma once

namespace zefuse::ze {

inline constexpr const char* loader_trial_program = "zefuse-try-loader";  // beside the libraries that start it

inline constexpr const char* trial_prefix = "zefuse-try-loader: ";
inline constexpr const char* trial_works = "works";
inline constexpr const char* trial_no_library = "no-library";
inline constexpr const char* trial_no_driver = "no-driver";
inline constexpr const char* trial_no_driver_library = "no-driver-library";  // DRIVER cannot be loaded
inline constexpr unsigned trial_ends_after_s = 60;  // by itself, should its caller go away meanwhile

// With --list, by words:
//   step WHAT                                     is begun now
//   library PATH                                  the loader's, driver-library PATH the driver's
//   component NAME VERSION API                    a part of the loader: "loader 1.8.12 1.4"
//   driver VERSION API UUID                       hexadecimal, "1.3", 32 digits
//   device KIND VENDOR DEVICE BYTES SHARED NAME   of the driver before it: "gpu 8086 56a5 6442450944 0 Arc A380";
//   SHARED is
//                                                 1 without memory of its own
inline constexpr const char* trial_step = "step";

}  // namespace zefuse::ze
