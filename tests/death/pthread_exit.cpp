// pthread_exit.cpp: a goroutine ends a thread that is not its own.
#include <weft/weft.hpp>

#include <pthread.h>

int main() {
  return weft::run([] {
    weft::wait_group all;
    all.go([] { ::pthread_exit(nullptr); });
    all.wait();
  });
}
