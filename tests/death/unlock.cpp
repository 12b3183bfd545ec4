// unlock.cpp: unlocks what is not locked.
#include <weft/weft.hpp>

#include <string_view>

int main(int argc, char** argv) {
  const std::string_view how = argc > 1 ? argv[1] : "";
  return weft::run([how] {
    weft::mutex m;
    weft::shared_mutex shared;
    if (how == "shared_never_locked") shared.unlock();
    if (how == "shared_by_nobody") shared.unlock_shared();
    if (how == "shared_of_a_writer") {
      shared.lock();
      shared.unlock_shared();
    }
    if (how == "exclusive_of_a_reader") {
      shared.lock_shared();
      shared.unlock();
    }
    if (how == "shared_twice") {
      shared.lock_shared();
      shared.unlock_shared();
      shared.unlock_shared();
    }
    if (how == "exclusive_twice") {
      shared.lock();
      shared.unlock();
      shared.unlock();
    }
    if (how == "never_locked") m.unlock();
    if (how == "twice") {
      m.lock();
      m.unlock();
      m.unlock();
    }
    if (how == "after_a_waiter") {
      weft::wait_group all;
      m.lock();
      all.go([&] {
        m.lock();
        m.unlock();
      });
      weft::this_goroutine::yield();
      m.unlock();
      all.wait();
      m.unlock();
    }
  });
}
