// Runs one random program of the torture machine with Go: reads its table from a file, or from
// standard input, and prints what was measured as one JSON object. It is ../weft in Go, file by
// file and kind by kind; the comments there hold here, too.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	nsPerUs  = 1000
	nsPerMs  = 1000 * 1000
	capAfter = 10 * 1000 * nsPerMs
)

// program is what runs: its end, its groups, and what is known of it when it is over.
type program struct {
	stepsPerUs int64
	start      int64
	deadline   int64
	cap        int64
	hasFinite  bool
	groups     []*group
	started    int64
	alive      sync.WaitGroup
	finiteLeft int64
	finiteEnd  int64
	neverRan   int64
	early      int64
}

// group is one line of the table and what was measured of its goroutines.
type group struct {
	all      *program
	line     line
	n        int
	rounds   int64
	progress []int64
	meters   [len(waitNames)]meter
}

func newProgram(t table) *program {
	p := &program{stepsPerUs: measureStepsPerUs()}
	for _, l := range t.groups {
		g := &group{all: p, line: l, n: int(l.number("n")), rounds: l.numberOr("rounds", 0)}
		g.progress = make([]int64, g.n)
		p.groups = append(p.groups, g)
		p.hasFinite = p.hasFinite || g.rounds != 0
	}
	p.start = now()
	p.deadline = p.start + t.head.number("ms")*nsPerMs
	p.cap = p.start + capAfter
	return p
}

func (p *program) run() {
	for _, g := range p.groups {
		if g.rounds != 0 {
			p.finiteLeft += int64(g.n)
		}
	}
	for _, g := range p.groups {
		startGroup(p, g)
	}
	p.started = now()
	p.alive.Wait()
}

func (p *program) isOver(now int64) bool {
	return now >= p.cap || (now >= p.deadline && atomic.LoadInt64(&p.finiteLeft) == 0)
}

func (p *program) compute(us int64) {
	const piece = 1000
	for left := us; left > 0; left -= piece {
		part := left
		if part > piece {
			part = piece
		}
		spin(part * p.stepsPerUs)
		if left > piece && p.isOver(now()) {
			return
		}
	}
}

type counted bool

const (
	isCounted  counted = true
	notCounted counted = false
)

// goroutine starts one and meters how long it takes to begin.
func (g *group) goroutine(c counted, body func()) {
	finite := c == isCounted && g.rounds != 0
	g.all.alive.Add(1)
	started := now()
	go func() {
		p := g.all
		begun := now()
		g.waited(waitFresh, started)
		if begun > p.deadline && started < (p.start+p.deadline)/2 {
			atomic.AddInt64(&p.neverRan, 1)
		}
		body()
		if finite {
			atomic.StoreInt64(&p.finiteEnd, now())
			atomic.AddInt64(&p.finiteLeft, -1)
		}
		p.alive.Done()
	}()
}

func (g *group) more(rounds int64) bool {
	return (g.rounds == 0 || rounds < g.rounds) && !g.all.isOver(now())
}

func (g *group) waited(kind wait, since int64) {
	at := now()
	g.meters[kind].add(at-since, at-g.all.start)
}

func (g *group) received(kind wait, sent, began int64) {
	if sent > began {
		g.waited(kind, sent)
	}
}

func (g *group) wasDue(kind wait, due int64) {
	if now() < due {
		atomic.AddInt64(&g.all.early, 1)
	}
	g.waited(kind, due)
}

func (g *group) sleep(us int64) {
	due := now() + us*nsPerUs
	time.Sleep(time.Duration(us) * time.Microsecond)
	g.wasDue(waitTimer, due)
}

type waitReport struct {
	Count     uint64  `json:"count"`
	P50Us     float64 `json:"p50_us"`
	P99Us     float64 `json:"p99_us"`
	WorstUs   float64 `json:"worst_us"`
	WorstAtMs float64 `json:"worst_at_ms"`
}

type groupReport struct {
	Kind  string                `json:"kind"`
	Turns int64                 `json:"turns"`
	Jain  float64               `json:"jain"`
	Waits map[string]waitReport `json:"waits"`
}

type report struct {
	Contender  string        `json:"contender"`
	TotalMs    float64       `json:"total_ms"`
	Finite     bool          `json:"finite"`
	Stuck      bool          `json:"stuck"`
	StartedMs  float64       `json:"started_ms"`
	WallMs     float64       `json:"wall_ms"`
	CPUMs      float64       `json:"cpu_ms"`
	StepsPerUs int64         `json:"steps_per_us"`
	NeverRan   int64         `json:"never_ran"`
	Early      int64         `json:"early"`
	Stalls     int           `json:"stalls"`
	StallMs    float64       `json:"stall_ms"`
	StallCPUMs float64       `json:"stall_cpu_ms"`
	Groups     []groupReport `json:"groups"`
}

func usedCPU() int64 {
	var r syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &r); err != nil {
		return 0
	}
	return r.Utime.Nano() + r.Stime.Nano()
}

func (p *program) report() report {
	end := now()
	total := end
	stuck := p.finiteLeft != 0 || (p.hasFinite && p.finiteEnd >= p.cap)
	if p.hasFinite {
		total = p.finiteEnd
	}
	if stuck {
		total = p.cap
	}
	r := report{Contender: "go", TotalMs: float64(total-p.start) / nsPerMs, Finite: p.hasFinite,
		Stuck: stuck, StartedMs: float64(p.started-p.start) / nsPerMs, WallMs: float64(end-p.start) / nsPerMs, CPUMs: float64(usedCPU()) / nsPerMs,
		StepsPerUs: p.stepsPerUs, NeverRan: p.neverRan, Early: p.early}
	for _, g := range p.groups {
		one := groupReport{Kind: g.line.word, Jain: jain(g.progress), Waits: map[string]waitReport{}}
		for _, turns := range g.progress {
			one.Turns += turns
		}
		for kind := range waitNames {
			m := &g.meters[kind]
			if m.count() == 0 {
				continue
			}
			one.Waits[waitNames[kind]] = waitReport{m.count(), float64(m.percentile(0.5)) / nsPerUs,
				float64(m.percentile(0.99)) / nsPerUs, float64(m.worst) / nsPerUs,
				float64(m.worstAt) / nsPerMs}
		}
		r.Groups = append(r.Groups, one)
	}
	return r
}

// fail ends the process with a message.
func fail(status int, why interface{}) {
	fmt.Fprintln(os.Stderr, why)
	os.Exit(status)
}

func main() {
	in := os.Stdin
	if len(os.Args) > 1 {
		file, err := os.Open(os.Args[1])
		if err != nil {
			fail(3, err)
		}
		in = file
	}
	text, err := io.ReadAll(in)
	if err != nil {
		fail(3, err)
	}
	t := parseTable(string(text))
	runtime.GOMAXPROCS(int(t.head.number("procs")))
	p := newProgram(t)
	p.run()
	out, err := json.Marshal(p.report())
	if err != nil {
		fail(4, err)
	}
	fmt.Println(string(out))
	os.Exit(0)
}
