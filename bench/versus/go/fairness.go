package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const measured = 5 * time.Second

// computeFor computes for so long by the wall clock.
func computeFor(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
	}
}

func us(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
func ms(d time.Duration) float64 { return us(d) / 1e3 }

func figure(name string, value float64, unit string) {
	fmt.Printf("%s %d %.1f %s\n", name, runtime.GOMAXPROCS(0), value, unit)
}

func require(ok bool, what string) {
	if !ok {
		fmt.Fprintln(os.Stderr, "wrong result:", what)
		os.Exit(1)
	}
}

// nap is a plain blocking call. Preemption may cut it short.
func nap(d time.Duration) {
	t := syscall.NsecToTimespec(d.Nanoseconds())
	for syscall.Nanosleep(&t, &t) == syscall.EINTR {
	}
}

type progressOfOne struct {
	turns, last, longestWait atomic.Int64
	_                        [40]byte
}

func progress(name string, n int) {
	const turn = 100 * time.Microsecond
	all := make([]progressOfOne, n)
	begin := time.Now()
	for i := range all {
		go func() {
			self := &all[i]
			for {
				now := time.Since(begin).Nanoseconds()
				waited := now - self.last.Load()
				self.turns.Add(1)
				self.last.Store(now)
				if waited > self.longestWait.Load() {
					self.longestWait.Store(waited)
				}
				computeFor(turn)
				runtime.Gosched()
			}
		}()
	}
	nap(measured) // the goroutine that counts takes no processor meanwhile
	passed := time.Since(begin)

	never, sum, squares, longestWait := 0, 0.0, 0.0, int64(0)
	for i := range all {
		turns := float64(all[i].turns.Load())
		if turns == 0 {
			never++
		}
		sum += turns
		squares += turns * turns
		longestWait = max(longestWait, all[i].longestWait.Load(), passed.Nanoseconds()-all[i].last.Load())
	}
	computed := sum * us(turn) / us(passed) / float64(runtime.GOMAXPROCS(0))
	require(computed > 0.2 && computed < 1.5, "progress: too few turns, or more than there is time")
	figure(name+"-never", float64(never), "goroutines")
	figure(name+"-unfair", (1-sum*sum/(float64(n)*squares))*1000, "permille")
	figure(name, float64(longestWait)/1e6, "ms-max")
}

func fresh(name string) {
	const n, turn, period, patience = 100, time.Millisecond, 20 * time.Millisecond, 20 * time.Second
	var stop atomic.Bool
	var ran atomic.Int64
	delays := make([]time.Duration, n)
	started := 0
	var busy, startedOnes sync.WaitGroup
	busy.Add(2)
	go func() {
		begin := time.Now()
		last := begin
		for ran.Load() < n && time.Since(begin) < patience {
			computeFor(turn)
			if time.Since(last) > period && started < n {
				last = time.Now()
				startedOnes.Add(1)
				delay, made := &delays[started], last
				started++
				go func() {
					*delay = time.Since(made)
					ran.Add(1)
					startedOnes.Done()
				}()
			}
			runtime.Gosched()
		}
		stop.Store(true)
		busy.Done()
	}()
	go func() {
		for !stop.Load() {
			computeFor(turn)
			runtime.Gosched()
		}
		busy.Done()
	}()
	busy.Wait()
	startedOnes.Wait()
	require(int(ran.Load()) == started && started >= n/4, "fresh")
	delays = delays[:started]
	slices.Sort(delays)
	require(delays[0] > 0, "fresh: started before it was made")
	figure(name, us(delays[len(delays)/2]), "us-p50")
	figure(name, us(delays[len(delays)-1]), "us-max")
}

func startYielders(n int, turn time.Duration, turns *atomic.Int64) {
	for range n {
		go func() {
			for {
				computeFor(turn)
				turns.Add(1)
				runtime.Gosched()
			}
		}()
	}
}

func startPairs(n int, turn time.Duration, turns *atomic.Int64) {
	for range n {
		there, back := make(chan int), make(chan int)
		go func() {
			for {
				computeFor(turn)
				turns.Add(1)
				there <- 1
				<-back
			}
		}()
		go func() {
			for {
				<-there
				computeFor(turn)
				turns.Add(1)
				back <- 1
			}
		}()
	}
}

func startHogs(n int, turns *atomic.Int64) {
	for range n {
		go func() {
			for {
				computeFor(time.Millisecond)
				turns.Add(1)
			}
		}()
	}
}

func tick(name string, turns *atomic.Int64) {
	const pause = 10 * time.Millisecond
	var late []time.Duration
	begin := time.Now()
	for now := begin; now.Sub(begin) < measured; {
		time.Sleep(pause)
		woke := time.Now()
		late = append(late, woke.Sub(now)-pause)
		now = woke
	}
	require(turns.Load() > 100, "tick: the others did not run")
	slices.Sort(late)
	require(late[0] >= 0, "tick: woke early")
	figure(name, us(late[len(late)/2]), "us-p50")
	figure(name, us(late[len(late)*99/100]), "us-p99")
	figure(name, us(late[len(late)-1]), "us-max")
}

func pair(name string) {
	const turn, length = 5 * time.Millisecond, 3 * time.Second
	var turns atomic.Int64
	startPairs(1, turn, &turns)
	longestWait := time.Duration(0)
	ran := 0
	begin := time.Now()
	for last := begin; last.Sub(begin) < length; ran++ {
		runtime.Gosched()
		now := time.Now()
		longestWait = max(longestWait, now.Sub(last))
		last = now
	}
	require(turns.Load() > 10 && ran > 3, "pair: somebody did not run")
	figure(name, ms(longestWait), "ms-max")
}

func plea(name string) {
	const rounds, queued, blocked = 30, 5, 200 * time.Millisecond
	worst := time.Duration(0)
	for round := range rounds {
		turn := 10300*time.Microsecond + time.Duration(round%15)*200*time.Microsecond
		var isBusy atomic.Bool
		var ran atomic.Int64
		var last [queued]time.Time
		var begin time.Time
		var all sync.WaitGroup
		all.Add(1)
		// The other processor is busy until shortly after the call has begun.
		go func() {
			isBusy.Store(true)
			computeFor(turn + time.Millisecond)
			all.Done()
		}()
		for !isBusy.Load() {
			time.Sleep(time.Millisecond)
		}
		all.Add(1 + queued)
		go func() {
			for i := range last {
				go func() {
					last[i] = time.Now()
					ran.Add(1)
					all.Done()
				}()
			}
			computeFor(turn)
			begin = time.Now()
			nap(blocked)
			all.Done()
		}()
		all.Wait()
		require(ran.Load() == queued, "plea: somebody did not run")
		for _, at := range last {
			worst = max(worst, at.Sub(begin))
		}
	}
	figure(name, ms(worst), "ms-max")
}

// measureFairness runs that case, checks its result and prints its figures. It returns false if
// there is no such case.
func measureFairness(name string) bool {
	kind := strings.TrimRight(name, "0123456789")
	n, _ := strconv.Atoi(name[len(kind):])
	if n == 0 && kind != "fresh" && kind != "pair" && kind != "plea" {
		return false
	}
	const round = 100 * time.Millisecond // of one processor, through all that compute and yield
	turns := new(atomic.Int64)
	switch kind {
	case "progress":
		progress(name, n)
	case "fresh":
		fresh(name)
	case "tickyield":
		startYielders(n, round/time.Duration(n), turns)
		tick(name, turns)
	case "tickpairs":
		startPairs(n, round/time.Duration(2*n), turns)
		tick(name, turns)
	case "tickhogs":
		startHogs(n, turns)
		tick(name, turns)
	case "pair":
		pair(name)
	case "plea":
		plea(name)
	default:
		return false
	}
	return true
}
