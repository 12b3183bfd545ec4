// unload.cpp <plugin>: closes a library that contains weft, whose threads still run in there.
#include <chrono>
#include <cstdio>
#include <dlfcn.h>
#include <thread>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  for (int i = 0; i < 3; ++i) {
    void* const plugin = ::dlopen(argv[1], RTLD_NOW);
    if (plugin == nullptr) {
      std::puts(::dlerror());
      return 3;
    }
    const auto use_weft = reinterpret_cast<int (*)()>(::dlsym(plugin, "use_weft"));
    if (use_weft == nullptr) return 4;
    std::printf("%d\n", use_weft());
    if (::dlclose(plugin) != 0) return 5;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return 0;
}
