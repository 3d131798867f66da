package audit_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/audit"
)

const clockError = 100 * time.Millisecond

var epoch = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// A writer writes the journal of a process whose wall clock is wrong by off. Times are true ones, since the epoch.
type writer struct {
	bytes.Buffer
	name       string
	off, began time.Duration
}

func left(d time.Duration) *int64 { return (*int64)(&d) }

func newWriter(name string, off, began time.Duration) *writer {
	w := &writer{name: name, off: off, began: began}
	w.add(began, audit.Event{Kind: audit.Start, Version: audit.Version, Process: name})
	return w
}

func (w *writer) add(at time.Duration, e audit.Event) {
	e.By, e.At, e.Wall = "id of "+w.name, int64(at-w.began), epoch.Add(at+w.off)
	line, err := json.Marshal(e)
	if err != nil {
		panic(err)
	}
	w.Write(append(line, '\n'))
}

// lease writes a lease that was valid from one moment to another and then released. Change what it says first.
func (w *writer) lease(id string, fence uint64, asked, from, to time.Duration, change ...func(*audit.Event)) {
	e := audit.Event{Kind: audit.Acquired, Lease: id, Names: []string{"order"}, Fence: fence, Left: left(10 * time.Second),
		Asked: int64(asked - w.began), AskedWall: epoch.Add(asked + w.off)}
	for _, c := range change {
		c(&e)
	}
	w.add(from, e)
	w.add(to, audit.Event{Kind: audit.Released, Lease: id, Left: left(time.Second)})
}

func judge(t *testing.T, ws ...*writer) audit.Result {
	t.Helper()
	return judgeWith(t, clockError, ws...)
}

func judgeWith(t *testing.T, clockError time.Duration, ws ...*writer) audit.Result {
	t.Helper()
	var journals []*audit.Journal
	for i, w := range ws {
		j, err := audit.Read(fmt.Sprint("journal ", i), bytes.NewReader(w.Bytes()))
		require.NoError(t, err)
		journals = append(journals, j)
	}
	return audit.Judge(audit.Options{ClockError: clockError}, journals...)
}

const s = time.Second

func permits(n, of int) func(*audit.Event) {
	return func(e *audit.Event) { e.Permits, e.Of = n, of }
}

func reads(e *audit.Event) { e.Reader = true }

func TestWhatIsWrongIsFoundAndSaysWhatItRestsOn(t *testing.T) {
	for name, c := range map[string]struct {
		write func(a, b *writer)
		kind  audit.ViolationKind
		basis audit.Basis
		text  string
	}{
		"two at once in one process": {func(a, _ *writer) {
			a.lease("1", 5, 0, 1*s, 3*s)
			a.lease("2", 6, 0, 2*s, 4*s)
		}, audit.Overlap, audit.ByProcess, "a with fencing token 5 and a with fencing token 6 held it at the same time, for 1s at least"},
		"two at once, and nobody said how long they were valid": {func(a, _ *writer) {
			a.add(1*s, audit.Event{Kind: audit.Acquired, Lease: "2", Names: []string{"order"}, AskedWall: epoch})
			a.add(2*s, audit.Event{Kind: audit.Acquired, Lease: "3", Names: []string{"order"}, AskedWall: epoch})
			a.add(3*s, audit.Event{Kind: audit.Released, Lease: "2"})
			a.add(4*s, audit.Event{Kind: audit.Lost, Lease: "3", Error: "gone"})
		}, audit.Overlap, audit.ByProcess, "a and a held it at the same time, for 1s at least"},
		"two at once in two processes, without fencing tokens": {func(a, b *writer) {
			a.lease("1", 0, 0, 1*s, 3*s)
			b.lease("2", 0, 0, 2*s, 4*s)
		}, audit.Overlap, audit.ByClocks, "a and b held it at the same time, for 800ms at least"},
		"one takes too long in between": {func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 2*s)
			b.lease("2", 6, 0, 1500*time.Millisecond, 4*s)
			a.lease("3", 7, 0, 4*s, 5*s)
		}, audit.Overlap, audit.ByFence, "by the fencing tokens b with fencing token 6 took 2.5s between a with fencing token 5 and its next with 7, which were only 2s apart"},
		"several take too long in between": {func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 2*s)
			b.lease("2", 6, 0, 2*s, 3*s)
			b.lease("3", 7, 0, 3*s, 5*s)
			a.lease("4", 8, 0, 4*s, 5*s)
		}, audit.Overlap, audit.ByFence, "2 leases, the longest by b with fencing token 7, took 3s"},
		"a token twice": {func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 2*s)
			b.lease("2", 5, 3*s, 4*s, 5*s)
		}, audit.FenceDuplicate, audit.ByFence, "a and b have the same fencing token 5"},
		"a smaller token later, in one process": {func(a, _ *writer) {
			a.lease("1", 6, 0, 1*s, 2*s)
			a.lease("2", 5, 1001*time.Millisecond, 3*s, 4*s)
		}, audit.FenceInversion, audit.ByProcess, "a with fencing token 5 was asked for after a with fencing token 6 was granted"},
		"a smaller token later, in two": {func(a, b *writer) {
			a.lease("1", 6, 0, 1*s, 2*s)
			b.lease("2", 5, 3*s, 4*s, 5*s)
		}, audit.FenceInversion, audit.ByClocks, "b with fencing token 5 was asked for after a with fencing token 6 was granted"},
		"a reader beside a writer": {func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 3*s)
			b.lease("2", 6, 0, 1*s, 3*s, reads)
		}, audit.Overlap, audit.ByClocks, "for 1.8s at least"},
		"a permit beside a writer": {func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 3*s)
			b.lease("2", 6, 0, 1*s, 3*s, permits(1, 3))
		}, audit.Overlap, audit.ByClocks, "for 1.8s at least"},
		"too many permits, in one process": {func(a, _ *writer) {
			a.lease("1", 5, 0, 1*s, 3*s, permits(2, 3))
			a.lease("2", 6, 0, 2*s, 4*s, permits(2, 3))
		}, audit.Overlap, audit.ByProcess, "4 permits of 3 were held at the same time"},
		"too many permits, in two": {func(a, b *writer) {
			a.lease("1", 5, 0, 1*s, 3*s, permits(1, 2))
			b.lease("2", 6, 0, 1*s, 3*s, permits(1, 2))
			a.lease("3", 7, 0, 1*s, 3*s, permits(1, 2))
		}, audit.Overlap, audit.ByClocks, "3 permits of 2 were held at the same time"},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newWriter("a", 0, 0), newWriter("b", 0, s/2)
			c.write(a, b)
			trusted := clockError
			if c.basis == audit.ByFence {
				trusted = 24 * time.Hour
			}
			r := judgeWith(t, trusted, a, b)
			require.Equal(t, audit.Violated, r.Verdict)
			require.Len(t, r.Violations, 1, "%+v", r.Violations)
			require.Equal(t, map[audit.ViolationKind]int{c.kind: 1}, r.Counts)
			require.Equal(t, c.kind, r.Violations[0].Kind)
			require.Equal(t, c.basis, r.Violations[0].Basis)
			require.Equal(t, "order", r.Violations[0].Name)
			require.Contains(t, r.Violations[0].Text, c.text)
			require.NotEmpty(t, r.Violations[0].Leases)
		})
	}
}

// Clocks that may be wrong by 100ms each tell an overlap of more than 200ms. One that is shorter is counted.
func TestAnOverlapThatMayComeFromTheClocksIsNoViolation(t *testing.T) {
	for by, want := range map[time.Duration]audit.Verdict{
		50 * time.Millisecond: audit.Consistent, 200 * time.Millisecond: audit.Consistent, 201 * time.Millisecond: audit.Violated,
	} {
		a, b := newWriter("a", clockError, 0), newWriter("b", -clockError, 0)
		a.lease("1", 0, 0, 1*s, 3*s)
		b.lease("2", 0, 0, 3*s-by+2*clockError, 5*s)
		r := judge(t, a, b)
		require.Equal(t, want, r.Verdict, by)
		if want == audit.Consistent {
			require.Equal(t, 1, r.Close, by)
		} else {
			require.InDelta(t, 1, r.Violations[0].Millis, 1e-6)
		}
	}
}

// A past is what really happened to some locks, as processes with wrong clocks have recorded it.
type past struct {
	random  *rand.Rand
	writers []*writer
	now     time.Duration
	fence   uint64
	ids     int
}

func newPast(seed uint64, processes int) *past {
	h := &past{random: rand.New(rand.NewPCG(seed, 0))}
	for i := range processes {
		off := time.Duration(h.random.Int64N(int64(2*clockError)+1)) - clockError
		h.writers = append(h.writers, newWriter(fmt.Sprint("p", i), off, h.upTo(s)))
	}
	h.now = s
	return h
}

func (h *past) upTo(d time.Duration) time.Duration {
	return time.Duration(h.random.Int64N(int64(d)))
}

// turn is one holder of a mutex, or several that may share it.
func (h *past) turn(name string) {
	many, kind := 1, h.random.IntN(4)
	if kind >= 2 {
		many += h.random.IntN(3)
	}
	end := h.now
	for range many {
		h.fence++
		h.ids++
		id, w := fmt.Sprint(h.ids), h.writers[h.random.IntN(len(h.writers))]
		from := h.now + h.upTo(s/2)
		to := from + h.upTo(s)
		e := audit.Event{Kind: audit.Acquired, Lease: id, Names: []string{name}, Fence: h.fence, Left: left(to - from)}
		switch kind {
		case 1:
			if h.random.IntN(4) == 0 {
				e.Fence = 0
			}
		case 2:
			e.Reader = true
		case 3:
			e.Permits, e.Of = 1, 3
		}
		asked := max(w.began, from-h.upTo(2*s))
		if many > 1 {
			asked = max(w.began, h.now-h.upTo(s)) // fencing tokens of those who ask at the same time may have any order
		}
		e.Asked, e.AskedWall = int64(asked-w.began), epoch.Add(asked+w.off)
		w.add(from, e)
		sure := from + time.Duration(h.random.Int64N(int64(to-from)+1))
		switch h.random.IntN(5) {
		case 0: // it crashed
		case 1: // it stood still, and says late that the lease was lost
			w.add(to+h.upTo(s), audit.Event{Kind: audit.Lost, Lease: id, Error: "too late"})
		case 2:
			w.add(sure, audit.Event{Kind: audit.Valid, Lease: id, Left: left(to - sure), Reader: e.Reader})
			w.add(to, audit.Event{Kind: audit.Released, Lease: id})
		default:
			w.add(sure, audit.Event{Kind: audit.Released, Lease: id, Left: left(to - sure)})
			to = sure
		}
		end = max(end, to)
	}
	h.now = end
}

// Whatever the clocks show: if nobody held a lock beside another, the audit must not say so.
func TestARightHistoryIsNeverCalledWrong(t *testing.T) {
	for seed := range uint64(400) {
		h := newPast(seed, 1+int(seed%4))
		for range 30 {
			h.turn("a")
		}
		r := judge(t, h.writers...)
		require.NotEqual(t, audit.Violated, r.Verdict, "seed %d: %+v", seed, r.Violations)
		require.GreaterOrEqual(t, r.Leases, 30)
	}
}

// A lease that began a moment too early, by more than the clocks can be wrong, is found in every history.
func TestALeaseTooEarlyIsFoundInEveryHistory(t *testing.T) {
	found := map[audit.Basis]int{}
	for seed := range uint64(200) {
		h := newPast(seed, 3)
		for range 10 {
			h.turn("a")
		}
		w, v := h.writers[0], h.writers[1+seed%2]
		w.lease("one", h.fence+1, h.now, h.now+1*s, h.now+5*s)
		v.lease("two", h.fence+2, h.now, h.now+3*s, h.now+6*s)
		r := judge(t, h.writers...)
		require.Equal(t, 1, r.Counts[audit.Overlap], "seed %d: %+v", seed, r.Violations)
		found[r.Violations[0].Basis]++
	}
	require.Equal(t, map[audit.Basis]int{audit.ByClocks: 200}, found)
}

// A process that crashed, or stood still, did not hold the lock for longer than it is known to have.
func TestALeaseIsTakenForShorterThanItWas(t *testing.T) {
	next := func(b *writer) { b.lease("2", 6, 0, 5*s, 6*s) }
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	acquired := audit.Event{Kind: audit.Acquired, Lease: "1", Names: []string{"order"}, Fence: 5, AskedWall: epoch, Left: left(3 * s)}
	a.add(1*s, acquired)
	a.add(2*s, audit.Event{Kind: audit.Valid, Lease: "1", Left: left(3 * s)})
	next(b)
	require.Equal(t, audit.Consistent, judge(t, a, b).Verdict, "it crashed")

	a.add(time.Hour, audit.Event{Kind: audit.Lost, Lease: "1", Error: "it was not renewed"})
	require.Equal(t, audit.Consistent, judge(t, a, b).Verdict, "it stood still for an hour")

}

// A machine that was suspended, or whose clock was set, has a wall clock that its monotonic one does not confirm.
func TestAProcessWhoseClockWasSetIsComparedByFencingTokensOnly(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	a.lease("1", 5, 0, 1*s, 2*s)
	a.off = -5 * s
	a.lease("3", 7, 6*s, 7*s, 8*s) // by its clock it was at the second second
	b.lease("2", 6, 0, 2*s, 3*s)
	r := judge(t, a, b)
	require.Equal(t, audit.Unsure, r.Verdict, "%+v", r.Violations)
	require.Equal(t, []string{"a: its wall clock was set by 5s, or the machine was suspended, so its leases were compared with those of other processes by fencing tokens only"}, r.LeftOut)

	b.lease("4", 8, 0, 8*s, 9*s)
	b.lease("5", 9, 0, 9*s, 10*s)
	a.lease("6", 10, 0, 9*s, 11*s)
	r = judge(t, a, b)
	require.Equal(t, audit.Violated, r.Verdict)
	require.Equal(t, audit.ByFence, r.Violations[0].Basis)
}

// After a suspend, a process may have a lease again before it says that the one of before is lost.
func TestALeaseThatExpiredWhileTheMachineWasSuspendedIsOver(t *testing.T) {
	a := newWriter("a", 0, 0)
	a.add(1*s, audit.Event{Kind: audit.Acquired, Lease: "1", Names: []string{"order"}, Fence: 5, AskedWall: epoch, Left: left(10 * s)})
	a.off += time.Hour // which the monotonic clock does not count
	a.lease("2", 6, 2*s, 3*s, 5*s)
	a.add(4*s, audit.Event{Kind: audit.Lost, Lease: "1", Error: "it was not renewed"})
	r := judge(t, a)
	require.Empty(t, r.Violations)
	require.Equal(t, audit.Unsure, r.Verdict, r.LeftOut)
}

func TestAWriterThatBecameAReaderIsBoth(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	a.add(1*s, audit.Event{Kind: audit.Acquired, Lease: "1", Names: []string{"order"}, Fence: 5, AskedWall: epoch, Left: left(9 * s)})
	a.add(3*s, audit.Event{Kind: audit.Valid, Lease: "1", Left: left(9 * s), Reader: true})
	a.add(8*s, audit.Event{Kind: audit.Released, Lease: "1", Left: left(s), Reader: true})
	b.lease("2", 6, 0, 4*s, 6*s, reads)
	r := judge(t, a, b)
	require.Equal(t, audit.Consistent, r.Verdict, "%+v", r.Violations)
	b.lease("3", 7, 0, 6*s, 7*s)
	r = judge(t, a, b)
	require.Equal(t, 1, r.Counts[audit.Overlap])
	require.Equal(t, []string{"released", "released"}, []string{r.Violations[0].Leases[0].End, r.Violations[0].Leases[1].End})
}

func TestWhatIsMissingMakesTheVerdictUnsure(t *testing.T) {
	a := newWriter("a", 0, 0)
	require.Equal(t, []string{"there are no leases in the journals"}, judge(t, a).LeftOut)
	a.lease("1", 5, 0, 1*s, 2*s)
	require.Equal(t, audit.Consistent, judge(t, a).Verdict)
	a.add(3*s, audit.Event{Kind: audit.Missed, Count: 7})
	r := judge(t, a)
	require.Equal(t, audit.Unsure, r.Verdict)
	require.Equal(t, []string{"a: events that were not recorded, so that leases may be missing: 7"}, r.LeftOut)

	b := newWriter("b", 0, 0)
	b.lease("2", 6, 2*s, 3*s, 4*s)
	b.WriteString(`{"kind":"acquired","lea`)
	r = judge(t, b)
	require.Equal(t, audit.Unsure, r.Verdict)
	require.Equal(t, []string{"journal 0: lines that are not whole, as where a process crashes: 1"}, r.LeftOut)
	b.WriteString("\n")
	b.Write(newWriter("b again", 0, 5*s).Bytes())
	require.Equal(t, 2, judge(t, b).Processes)
}

func TestALineThatIsWrongIsNamed(t *testing.T) {
	start := `{"kind":"start","by":"p","at":0,"wall":"2026-01-02T03:04:05Z","version":1,"process":"a"}` + "\n"
	head := `"by":"p","at":1,"wall":"2026-01-02T03:04:06Z"`
	for text, want := range map[string]string{
		"redlock\n":               `j: it is no journal: no line of it is a JSON object`,
		`{"kind":"start","at":1}`: `j: line 1: "by" is missing`,
		`{"kind":"start","version":2,` + head + `}`:                          `j: line 1: the format has version 2; this program reads version 1`,
		start + `{"kind":"missed","at":1}`:                                   `j: line 2: "by" is missing`,
		start + `{"kind":"missed","by":"q","at":1}`:                          `j: line 2: "wall" is missing`,
		start + `{"kind":"granted",` + head + `}`:                            `j: line 2: unknown kind "granted"`,
		start + `{"kind":"valid","by":"p","at":1}`:                           `j: line 2: "wall" is missing`,
		start + `{"kind":"valid",` + head + `}`:                              `j: line 2: "lease" is missing`,
		start + `{"kind":"lost","left":-1,` + head + `}`:                     `j: line 2: "left" is negative`,
		start + `{"kind":"acquired","lease":"x",` + head + `}`:               `j: line 2: "names" are missing`,
		start + `{"kind":"acquired","lease":"x","names":["n"],` + head + `}`: `j: line 2: "asked" and "asked_wall" are missing, or after "at"`,
		start + `{"kind":"acquired","lease":"x","names":["n"],"asked_wall":"2026-01-02T03:04:05Z","permits":2,"of":1,` + head + `}`: `j: line 2: "permits" is not from 0 to "of": 2 of 1`,
		start + `{"kind":"valid","at":"x",` + head + `}`: `j: line 2: json: cannot unmarshal`,
		start + strings.Repeat("x", audit.MaxLine+1):     `j: a line is longer than 8388608 bytes`,
	} {
		_, err := audit.Read("j", strings.NewReader(text))
		require.ErrorContains(t, err, want, text[:min(len(text), 200)])
	}
}

// Only so many violations are listed; all are counted.
func TestAHistoryThatIsAllWrongStaysShort(t *testing.T) {
	a := newWriter("a", 0, 0)
	for i := range 5 * audit.MaxListed {
		at := time.Duration(i) * 2 * s
		a.lease(fmt.Sprint(i, "a"), 0, at, at, at+s)
		a.lease(fmt.Sprint(i, "b"), 0, at, at+s/2, at+s)
	}
	r := judge(t, a)
	require.Equal(t, 5*audit.MaxListed, r.Counts[audit.Overlap])
	require.Len(t, r.Violations, audit.MaxListed)
}

// A file that was rotated begins in the middle. Somebody gives a file twice, or in the wrong order.
func TestAProcessMayBeInSeveralFiles(t *testing.T) {
	a, b := newWriter("a", 0, 0), newWriter("b", 0, 0)
	whole := func() *writer {
		w := newWriter("a", 0, 0)
		for i := range 6 {
			at := time.Duration(i) * 10 * s
			w.lease(fmt.Sprint(i), uint64(i+1), at, at+1*s, at+7*s)
		}
		return w
	}
	lines := strings.SplitAfter(whole().String(), "\n")
	for cut := 1; cut < len(lines)-1; cut++ {
		a.Reset()
		b.Reset()
		a.WriteString(strings.Join(lines[:cut], ""))
		b.WriteString(strings.Join(lines[cut:], ""))
		r := judge(t, b, a, whole(), b)
		require.Equal(t, audit.Consistent, r.Verdict, "%+v %v", r.Violations, r.LeftOut)
		require.Equal(t, [2]int{1, 6}, [2]int{r.Processes, r.Leases})
		a.lease("beside", 0, 0, 36*s, 37*s) // it is in the first file, and beside the fourth lease
		for range 2 {
			if r = judge(t, a, b); cut < 9 {
				require.Equal(t, map[audit.ViolationKind]int{audit.Overlap: 1}, r.Counts, cut)
				require.InDelta(t, 1000, r.Violations[0].Millis, 1)
			}
		}
	}
}

func FuzzRead(f *testing.F) {
	w := newWriter("a", 0, 0)
	w.lease("1", 5, 0, 1*s, 2*s, permits(1, 2))
	w.add(3*s, audit.Event{Kind: audit.Missed, Count: 7})
	f.Add(w.Bytes())
	f.Fuzz(func(t *testing.T, text []byte) {
		j, err := audit.Read("j", bytes.NewReader(text))
		if err != nil {
			return
		}
		r := audit.Judge(audit.Options{}, j, j)
		if !slices.Contains([]audit.Verdict{audit.Consistent, audit.Violated, audit.Unsure}, r.Verdict) {
			t.Fatal(r.Verdict)
		}
	})
}
