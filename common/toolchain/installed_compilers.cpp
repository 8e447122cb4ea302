#include "common/toolchain/installed_compilers.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>

#include "common/base/fork.h"
#include "common/base/parallel.h"

namespace zefuse {
namespace {

using std::chrono::milliseconds;

// What a command stands for now; empty: nothing that could run.
std::string identityOf(const std::string& command) {
  auto identity = [](const std::string& path) -> std::string {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      return {};
    std::ostringstream text;
    text << path << ' ' << info.st_dev << ' ' << info.st_ino << ' ' << info.st_size << ' ' << info.st_mtim.tv_sec << ' '
         << info.st_mtim.tv_nsec;
    return text.str();
  };
  if (command.find('/') != std::string::npos)
    return identity(command);
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::string found = identity((folder.empty() ? "." : folder) + "/" + command); !found.empty())
      return found;
  return {};
}

struct Known {
  std::timed_mutex mutex;  // held while it is asked, so that others wait for the same answer
  bool asked = false;
  milliseconds waited{0};
  InstalledCompiler answer;
};

// By vendor and identity. Another thread may be asking when this process is forked, with callbacks of its caller's: its
// child asks anew.
using KnownCompilers = std::map<std::string, std::shared_ptr<Known>>;
ForkMutex all_mutex;
KnownCompilers* all = new KnownCompilers;  // guarded
void forgetInChild() { all = new KnownCompilers; }
[[maybe_unused]] const bool registered = (inEveryChild(forgetInChild), true);

InstalledCompiler ask(Known& known, const VendorCompiler& vendor, const std::string& command, milliseconds deadline,
                      const CancelCheck& cancelled) {
  std::unique_lock lock(known.mutex, std::defer_lock);
  while (!lock.try_lock_for(milliseconds(20)))
    if (cancelled())
      return {command, {}, {}, Status(Code::cancelled, command + " was not asked what it is: cancelled"), &vendor};
  if (known.asked && (known.answer.problem.code() != Code::deadline || deadline <= known.waited))
    return known.answer;
  CompilerOptions question;
  question.compiler = command;
  question.deadline = deadline;
  question.cancelled = cancelled;
  Result<std::string> version = Status(Code::internal, "not asked");
  Result<std::vector<std::string>> devices = version.status();
  inParallel(2, 2, [&](size_t i) {
    if (i == 0)
      version = vendor.version(question);
    else
      devices = vendor.devices(question);
  });
  InstalledCompiler answer{command, {}, {}, {}, &vendor};
  if (version.ok() && devices.ok()) {
    answer.version = std::move(*version);
    answer.devices = std::move(*devices);
  } else {
    answer.problem = version.ok() || devices.status().code() == Code::cancelled ? devices.status() : version.status();
  }
  if (answer.problem.code() != Code::cancelled) {
    known.asked = true;
    known.waited = deadline;
    known.answer = answer;
  }
  return answer;
}

}  // namespace

std::vector<InstalledCompiler> installedCompilers(milliseconds deadline, const CancelCheck& cancelled) {
  struct Command {
    const VendorCompiler* vendor;
    std::string name;
  };
  std::vector<Command> commands;
  for (const VendorCompiler& vendor : vendorCompilers())
    for (std::string& name : vendor.commands())
      commands.push_back({&vendor, std::move(name)});
  std::vector<std::shared_ptr<Known>> known(commands.size());
  {
    std::lock_guard lock(all_mutex);
    for (size_t i = 0; i < commands.size(); ++i)
      if (const std::string identity = identityOf(commands[i].name); !identity.empty()) {
        std::shared_ptr<Known>& entry =
            (*all)[std::string(commands[i].vendor->name) + " " + commands[i].name + " " + identity];
        if (!entry)
          entry = std::make_shared<Known>();
        known[i] = entry;
      }
  }
  std::vector<InstalledCompiler> answers(commands.size());
  inParallel(commands.size(), commands.size(), [&](size_t i) {
    answers[i].problem = Status(Code::not_found, "no such file");
    if (known[i])
      answers[i] = ask(*known[i], *commands[i].vendor, commands[i].name, deadline, cancelled);
  });
  std::erase_if(answers, [](const InstalledCompiler& each) { return each.problem.code() == Code::not_found; });
  return answers;
}

std::string describe(const std::vector<InstalledCompiler>& compilers) {
  std::string text;
  for (const InstalledCompiler& compiler : compilers) {
    text += (text.empty() ? "" : ", ") + compiler.command;
    if (compiler.problem.ok())
      text += " " + compiler.version;
    else
      text += " (" + compiler.problem.message().substr(0, compiler.problem.message().find('\n')) + ")";
  }
  return text.empty() ? "none" : text;
}

Result<InstalledCompiler> installedCompilerFor(const std::string& device, milliseconds deadline,
                                               const CancelCheck& cancelled) {
  std::vector<InstalledCompiler> compilers = installedCompilers(deadline, cancelled);
  const VendorCompiler* vendor = vendorCompilerOf(device);
  std::erase_if(compilers, [&](const InstalledCompiler& each) { return each.vendor && each.vendor != vendor; });
  for (InstalledCompiler& compiler : compilers) {
    if (compiler.problem.code() == Code::cancelled)
      return compiler.problem;
    if (std::ranges::find(compiler.devices, device) != compiler.devices.end())
      return std::move(compiler);
  }
  return Status(Code::not_found, "no installed compiler knows " + device + "; installed: " + describe(compilers));
}

}  // namespace zefuse
