// What a handle does after it was moved from: it says so, or is one on nothing, as documented; it
// never crashes.
#include "temporary_directory.hpp"

#include <weft/weft.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <fcntl.h>
#include <future>
#include <span>
#include <stdexcept>
#include <utility>

// NOLINTBEGIN(bugprone-use-after-move): that is what these are about.
namespace weft {
namespace {

using namespace std::chrono_literals;

TEST(moved_from, ticker) {
  ticker t(1ms);
  const ticker u = std::move(t);
  EXPECT_FALSE(t.c());
  t.stop();
  EXPECT_THROW(t.reset(1ms), std::logic_error);
  EXPECT_TRUE(u.c().recv());
}

TEST(moved_from, timer) {
  timer t(1ms);
  const timer u = std::move(t);
  EXPECT_FALSE(t.c());
  EXPECT_FALSE(t.stop());
  EXPECT_THROW(t.reset(1ms), std::logic_error);
  EXPECT_TRUE(u.c().recv());
}

TEST(moved_from, channel_is_nil) {
  chan<int> c(1);
  const chan<int> d = std::move(c);
  EXPECT_FALSE(c);
  EXPECT_EQ(c.try_send(1), chan_status::full);
  EXPECT_EQ(c.try_recv().error(), chan_status::empty);
  EXPECT_EQ(c.size(), 0u);
  EXPECT_EQ(c.capacity(), 0u);
  EXPECT_THROW(c.close(), nil_channel);
  EXPECT_TRUE(d);
}

TEST(moved_from, future_has_no_state) {
  future<int> f = async([] { return 1; });
  future<int> g = std::move(f);
  EXPECT_FALSE(f.valid());
  EXPECT_THROW((void)f.get(), std::future_error);
  EXPECT_THROW(f.wait(), std::future_error);
  EXPECT_THROW((void)f.wait_for(1ms), std::future_error);
  EXPECT_THROW((void)f.wait(context::background()), std::future_error);
  EXPECT_EQ(g.get(), 1);
}

TEST(moved_from, context_is_the_background) {
  auto [ctx, cancel] = with_cancel(context::background());
  const context kept = std::move(ctx);
  const cancel_function keeps = std::move(cancel);
  EXPECT_FALSE(ctx.done());
  EXPECT_FALSE(ctx.err());
  EXPECT_FALSE(ctx.deadline());
  EXPECT_EQ(ctx.cause(), nullptr);
  cancel();
  EXPECT_FALSE(kept.err());
  keeps();
  EXPECT_TRUE(kept.err());
}

TEST(moved_from, function_of_after_func) {
  auto [ctx, cancel] = with_cancel(context::background());
  auto stop = after_func(ctx, [] {});
  auto stops = std::move(stop);
  EXPECT_THROW((void)stop(), std::logic_error);
  EXPECT_TRUE(stops());
  cancel();
}

TEST(moved_from, listener_and_connection_are_closed) {
  auto l = net::listen("tcp", "127.0.0.1:0");
  ASSERT_TRUE(l) << l.error().message();
  net::listener listening = std::move(*l);
  EXPECT_EQ(l->accept().error(), errc::closed);
  EXPECT_EQ(l->close(), errc::closed);
  EXPECT_EQ(l->local_address().port(), 0);
  l->set_deadline(clock::now());

  auto c = net::dial("tcp", listening.local_address().to_string());
  ASSERT_TRUE(c) << c.error().message();
  const net::conn connected = std::move(*c);
  char byte = 0;
  EXPECT_EQ(c->read(std::span<char>(&byte, 1)).error(), errc::closed);
  EXPECT_EQ(c->write("x").error(), errc::closed);
  EXPECT_EQ(c->close_read(), errc::closed);
  EXPECT_EQ(c->close_write(), errc::closed);
  EXPECT_EQ(c->set_no_delay(true), errc::closed);
  EXPECT_EQ(c->close(), errc::closed);
  EXPECT_EQ(c->local_address().port(), 0);
  EXPECT_EQ(c->remote_address().port(), 0);
  c->set_deadline(clock::now());
}

TEST(moved_from, packet_connection_is_closed) {
  auto p = net::listen_packet("udp", "127.0.0.1:0");
  ASSERT_TRUE(p) << p.error().message();
  const net::packet_conn open = std::move(*p);
  std::byte byte{};
  EXPECT_EQ(p->read_from(std::span(&byte, 1)).error(), errc::closed);
  EXPECT_EQ(p->write_to(std::span<const std::byte>(&byte, 1), open.local_address()).error(),
            errc::closed);
  EXPECT_EQ(p->close(), errc::closed);
  EXPECT_EQ(p->local_address().port(), 0);
}

TEST(moved_from, file_is_closed) {
  const test::temporary_directory directory;
  auto f = os::open(directory / "file", O_RDWR | O_CREAT);
  ASSERT_TRUE(f) << f.error().message();
  const os::file open = std::move(*f);
  char byte = 0;
  EXPECT_FALSE(f->is_open());
  EXPECT_EQ(f->native_handle(), -1);
  EXPECT_EQ(f->read(std::span<char>(&byte, 1)).error(), errc::closed);
  EXPECT_EQ(f->write("x").error(), errc::closed);
  EXPECT_EQ(f->fsync(), errc::closed);
  EXPECT_EQ(f->close(), errc::closed);
  EXPECT_TRUE(open.is_open());
}

}  // namespace
}  // namespace weft
// NOLINTEND(bugprone-use-after-move)
