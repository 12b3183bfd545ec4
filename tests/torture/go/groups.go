package main

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// A token is the time at which it was sent.
type tokens chan int64

// startRounds has every goroutine of the group do one round after the other until the end.
func startRounds(g *group, c counted, round func()) {
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(c, func() {
			turns := int64(0)
			for ; g.more(turns); turns++ {
				round()
			}
			g.progress[i] = turns
		})
	}
}

func startYielders(p *program, g *group) {
	work := g.line.number("work_us")
	startRounds(g, isCounted, func() {
		p.compute(work)
		began := now()
		runtime.Gosched()
		g.waited(waitYield, began)
	})
}

// answer is the half of a pair that answers.
func answer(p *program, g *group, work int64, in, out tokens) {
	for {
		began := now()
		sent, ok := <-in
		if !ok {
			break
		}
		g.received(waitWake, sent, began)
		due := now() + work*1000
		p.compute(work)
		if p.isOver(now()) {
			break
		}
		out <- due
	}
	close(out)
}

// ask is the half that asks. Between two questions it sleeps, if sleep is not 0.
func ask(p *program, g *group, i int, work, sleep int64, in, out tokens) {
	turns := int64(0)
	for ; g.more(turns); turns++ {
		due := now() + work*1000
		p.compute(work)
		began := now()
		out <- due
		sent, ok := <-in
		if !ok {
			break
		}
		g.received(waitWake, sent, began)
		if sleep != 0 {
			g.sleep(sleep)
		}
	}
	close(out)
	g.progress[i] = turns
}

func startPairs(p *program, g *group) {
	work := g.line.number("work_us")
	for i := 0; i < g.n; i++ {
		i := i
		there, back := make(tokens), make(tokens)
		g.goroutine(notCounted, func() { answer(p, g, work, there, back) })
		g.goroutine(isCounted, func() { ask(p, g, i, work, 0, back, there) })
	}
}

func startRings(p *program, g *group) {
	work, size, count := g.line.number("work_us"), g.line.number("size"), g.line.number("tokens")
	for ring := 0; ring < g.n; ring++ {
		ring := ring
		channels := make([]tokens, size)
		for i := range channels {
			channels[i] = make(tokens, count)
		}
		for _, c := range channels[:count] {
			c <- 0
		}
		for i := range channels {
			i, in, out := i, channels[i], channels[(i+1)%len(channels)]
			g.goroutine(notCounted, func() {
				turns := int64(0)
				for ; ; turns++ {
					began := now()
					sent, ok := <-in
					if !ok {
						break
					}
					g.received(waitWake, sent, began)
					due := now() + work*1000
					p.compute(work)
					if p.isOver(now()) {
						break
					}
					out <- due
				}
				close(out)
				if i == 0 {
					g.progress[ring] = turns
				}
			})
		}
	}
}

func startSleepers(p *program, g *group) {
	work, sleep := g.line.number("work_us"), g.line.number("sleep_us")
	startRounds(g, isCounted, func() {
		g.sleep(sleep)
		p.compute(work)
	})
}

func startTickers(p *program, g *group) {
	work, every := g.line.number("work_us"), g.line.number("every_us")
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(notCounted, func() {
			period := every * nsPerUs
			first := now()
			t := time.NewTicker(time.Duration(period))
			for tries := 0; tries < 20 && now()-first > 20*nsPerUs; tries++ {
				t.Stop()
				first = now()
				t = time.NewTicker(time.Duration(period))
			}
			defer t.Stop()
			turns := int64(0)
			for ; g.more(turns); turns++ {
				began := now()
				due := first + ((began-first)/period+1)*period
				<-t.C
				if now() >= due {
					g.waited(waitTimer, due)
				}
				p.compute(work)
			}
			g.progress[i] = turns
		})
	}
}

// block blocks the thread for so long and meters how late it goes on.
func block(g *group, us int64) {
	due := now() + us*nsPerUs
	left := syscall.NsecToTimespec(us * nsPerUs)
	for syscall.Nanosleep(&left, &left) == syscall.EINTR {
	}
	g.wasDue(waitBack, due)
}

func startBlockers(p *program, g *group) {
	work, sleep := g.line.numberOr("work_us", 0), g.line.number("sleep_us")
	startRounds(g, notCounted, func() {
		block(g, sleep)
		p.compute(work)
	})
}

func startWaiters(p *program, g *group) {
	type bell struct {
		mu     sync.Mutex
		rung   *sync.Cond
		isRung bool
		when   int64
	}
	work := g.line.number("work_us")
	startRounds(g, notCounted, func() {
		b := &bell{}
		b.rung = sync.NewCond(&b.mu)
		g.goroutine(notCounted, func() {
			p.compute(work)
			b.mu.Lock()
			b.isRung = true
			b.when = now()
			b.rung.Signal()
			b.mu.Unlock()
		})
		began := now()
		b.mu.Lock()
		for !b.isRung {
			b.rung.Wait()
		}
		g.received(waitWake, b.when, began)
		b.mu.Unlock()
	})
}

func startMutexes(p *program, g *group) {
	work := g.line.number("work_us")
	mu := &sync.Mutex{}
	startRounds(g, isCounted, func() {
		mu.Lock()
		p.compute(work)
		mu.Unlock()
		began := now()
		runtime.Gosched()
		g.waited(waitYield, began)
	})
}

func startLocked(p *program, g *group) {
	work, sleep := g.line.number("work_us"), g.line.number("sleep_us")
	both := g.line.number("both") != 0
	for i := 0; i < g.n; i++ {
		i := i
		there, back := make(tokens), make(tokens)
		g.goroutine(notCounted, func() {
			if both {
				runtime.LockOSThread()
			}
			answer(p, g, work, there, back)
			if both && i%2 == 0 {
				runtime.UnlockOSThread()
			}
		})
		g.goroutine(notCounted, func() {
			runtime.LockOSThread()
			ask(p, g, i, work, sleep, back, there)
			runtime.UnlockOSThread()
		})
	}
}

func startStorms(p *program, g *group) {
	work, every, burst := g.line.number("work_us"), g.line.number("every_us"), g.line.number("burst")
	startRounds(g, isCounted, func() {
		g.sleep(every)
		var children sync.WaitGroup
		children.Add(int(burst))
		for child := int64(0); child < burst; child++ {
			g.goroutine(notCounted, func() {
				p.compute(work)
				children.Done()
			})
		}
		children.Wait()
	})
}

func grow(p *program, g *group, nodes *sync.WaitGroup, depth, work int64) {
	if depth > 0 {
		nodes.Add(2)
		for child := 0; child < 2; child++ {
			g.goroutine(notCounted, func() { grow(p, g, nodes, depth-1, work) })
		}
	}
	p.compute(work)
	nodes.Done()
}

func startTrees(p *program, g *group) {
	work, every, depth := g.line.number("work_us"), g.line.number("every_us"), g.line.number("depth")
	startRounds(g, notCounted, func() {
		g.sleep(every)
		var nodes sync.WaitGroup
		nodes.Add(1)
		grow(p, g, &nodes, depth, work)
		nodes.Wait()
	})
}

func startTimers(p *program, g *group) {
	work, every := g.line.number("work_us"), g.line.number("every_us")
	burst, within := g.line.number("burst"), g.line.number("within_us")
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(notCounted, func() {
			random := rand.New(rand.NewSource(int64(i) + 1))
			turns := int64(0)
			for ; g.more(turns); turns++ {
				var fired sync.WaitGroup
				fired.Add(int(burst))
				for one := int64(0); one < burst; one++ {
					delay := random.Int63n(within)
					due := now() + delay*nsPerUs
					time.AfterFunc(time.Duration(delay)*time.Microsecond, func() {
						g.wasDue(waitTimer, due)
						p.compute(work)
						fired.Done()
					})
				}
				fired.Wait()
				g.sleep(every)
			}
			g.progress[i] = turns
		})
	}
}

func startHogs(p *program, g *group) {
	const piece = 20
	const gap = 200 * nsPerUs
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(notCounted, func() {
			turns := int64(0)
			for last := now(); !p.isOver(last); turns++ {
				p.compute(piece)
				t := now()
				if t-last > gap {
					g.waited(waitHog, last+piece*nsPerUs)
				}
				last = t
			}
			g.progress[i] = turns
		})
	}
}

func startResizers(p *program, g *group) {
	every, values := g.line.number("every_us"), g.line.numbers("values")
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(notCounted, func() {
			turns := int64(0)
			for ; g.more(turns); turns++ {
				g.sleep(every)
				runtime.GOMAXPROCS(values[turns%int64(len(values))])
			}
			g.progress[i] = turns
		})
	}
}

func writeTime(c net.Conn) {
	var message [8]byte
	binary.LittleEndian.PutUint64(message[:], uint64(now()))
	c.Write(message[:]) // the reader may be gone, which it finds out itself
}

// readTime returns the time that was sent, or 0 at the end of the stream.
func readTime(c net.Conn) int64 {
	var message [8]byte
	if _, err := io.ReadFull(c, message[:]); err != nil {
		return 0
	}
	return int64(binary.LittleEndian.Uint64(message[:]))
}

func serve(g *group, c net.Conn) {
	defer c.Close()
	for {
		began := now()
		sent := readTime(c)
		if sent == 0 {
			return
		}
		g.received(waitIO, sent, began)
		writeTime(c)
	}
}

func startSockets(p *program, g *group) {
	work, every := g.line.number("work_us"), g.line.number("every_us")
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(4, err)
	}
	g.goroutine(notCounted, func() {
		defer listener.Close()
		for i := 0; i < g.n; i++ {
			c, err := listener.Accept()
			if err != nil {
				fail(4, err)
			}
			g.goroutine(notCounted, func() { serve(g, c) })
		}
	})
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(notCounted, func() {
			c, err := net.Dial("tcp", listener.Addr().String())
			if err != nil {
				fail(4, err)
			}
			defer c.Close()
			turns := int64(0)
			for ; g.more(turns); turns++ {
				g.sleep(every)
				began := now()
				writeTime(c)
				sent := readTime(c)
				if sent == 0 {
					break
				}
				g.received(waitIO, sent, began)
				p.compute(work)
			}
			g.progress[i] = turns
		})
	}
}

func startFiles(p *program, g *group) {
	every, size := g.line.number("every_us"), g.line.number("bytes")
	for i := 0; i < g.n; i++ {
		i := i
		g.goroutine(notCounted, func() {
			file, err := os.CreateTemp("", "torture")
			if err != nil {
				fail(4, err)
			}
			defer file.Close()
			os.Remove(file.Name())
			in := make([]byte, size)
			turns := int64(0)
			for ; g.more(turns); turns++ {
				out := bytes.Repeat([]byte{byte(turns)}, int(size))
				if _, err := file.WriteAt(out, turns%8*size); err != nil {
					fail(4, err)
				}
				if _, err := file.ReadAt(in, turns%8*size); err != nil {
					fail(4, err)
				}
				if !bytes.Equal(in, out) {
					fail(4, "the file holds something else")
				}
				g.sleep(every)
			}
			g.progress[i] = turns
		})
	}
}

var kinds = map[string]func(*program, *group){
	"yielders": startYielders, "pairs": startPairs, "rings": startRings, "sleepers": startSleepers,
	"tickers": startTickers, "pollers": startBlockers, "waiters": startWaiters,
	"mutexes": startMutexes, "blocking": startBlockers, "unannounced": startBlockers,
	"locked": startLocked, "storm": startStorms, "tree": startTrees, "timers": startTimers,
	"sockets": startSockets, "files": startFiles, "hogs": startHogs, "resize": startResizers,
}

// startGroup starts the goroutines of one group.
func startGroup(p *program, g *group) {
	start, ok := kinds[g.line.word]
	if !ok {
		fail(3, "wrong table: there is no kind "+g.line.word)
	}
	start(p, g)
}
