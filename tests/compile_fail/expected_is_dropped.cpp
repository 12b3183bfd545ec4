// expect: (nodiscard|ignoring return)
//
// With the result its error is lost, and with a connection or a file what was opened.
#pragma GCC diagnostic error "-Wunused-result"
#include <weft/http.hpp>
#include <weft/weft.hpp>

#include <cstddef>
#include <span>

void use(const weft::context& ctx, weft::net::conn& c, weft::net::listener& l,
         weft::net::packet_conn& p, weft::os::file& f, std::span<std::byte> bytes) {
  const weft::chan<int> numbers(1);
  numbers.recv(ctx);                        // refused
  numbers.try_recv();                       // refused
  weft::receiver<int>(numbers).recv(ctx);   // refused
  weft::receiver<int>(numbers).try_recv();  // refused

  weft::net::listen("tcp", ":7000");              // refused
  weft::net::listen_packet("udp", ":7000");       // refused
  weft::net::dial("tcp", "localhost:7000");       // refused
  weft::net::dial(ctx, "tcp", "localhost:7000");  // refused
  weft::net::resolve("localhost");                // refused
  weft::net::address::parse("127.0.0.1:80");      // refused
  weft::net::copy(c, c);                          // refused
  l.accept();                                     // refused
  c.read(bytes);                                  // refused
  c.write(bytes);                                 // refused
  c.write("reply");                               // refused
  p.read_from(bytes);                             // refused
  p.write_to("message", weft::net::address());    // refused

  weft::os::open("/dev/null", 0);  // refused
  weft::os::pipe();                // refused
  weft::os::copy(c, f);            // refused
  f.write("text");                 // refused
  f.pread(bytes, 0);               // refused
  f.seek(0);                       // refused

  weft::http::get("http://localhost/");               // refused
  weft::http::send(ctx, "PUT", "http://localhost/");  // refused
}
