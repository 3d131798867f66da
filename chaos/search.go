package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/search"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/fleet"
)

// SearchOptions say how to look for a schedule of faults under which the subject is unsafe.
type SearchOptions struct {
	// Options are those of each run, without Scenario, Schedule and History. Defaults: a TTL of 500ms, and a Length of five
	// TTLs. Log receives one line for each run.
	Options
	For    time.Duration // no run begins after this time. Default: no limit
	Runs   int           // at most. Default: no limit
	Random bool          // every schedule is random, to compare with
	Shrink int           // in at most so many runs, what is found is made smaller. Default 60; below 0: it is not
}

// SearchTTL is the default TTL of a search: runs are short then.
const SearchTTL = 500 * time.Millisecond

const (
	// Time is never the same twice. So a smaller schedule is run up to three times, and must be unsafe in two of them: else
	// what is left would be one that was unsafe by chance. If the whole schedule does not do that either, one is enough.
	shrinkTries = 3
	shrinkHits  = 2
	confirmRuns = 5 // of the schedule that is left

	defaultShrink = 60
	mostBroken    = 3 // so many aborted runs, one after another, end a search
)

// A SearchResult is the result of a search.
type SearchResult struct {
	Runs    int           // including those of Aborted, Idle and Unsure
	Aborted int           // something other than the subject failed
	Idle    int           // nobody acquired the lock, so they show nothing
	Unsure  int           // see check.Unsure
	Closest *search.Tried // of the runs without a violation. nil: nowhere did a lease end by itself before another grant
	Found   *Found        // nil: there was no violation
}

// Found is a schedule under which the subject is unsafe.
type Found struct {
	First    fault.Schedule // as it was found
	Schedule fault.Schedule // what is left of it
	Outcome  *Outcome       // of a run with Schedule that was unsafe
	Unsafe   int            // so many of Again runs with Schedule were unsafe, after it was shrunk
	Again    int
}

func (o SearchOptions) withDefaults() SearchOptions {
	if o.TTL == 0 {
		o.TTL = SearchTTL
	}
	if o.Length == 0 {
		o.Length = scenario.PlannedLength(o.TTL)
	}
	if o.Shrink == 0 {
		o.Shrink = defaultShrink
	}
	o.Options = o.Options.withDefaults()
	o.Scenario, o.Schedule, o.History = scenario.PlannedName, fault.Schedule{}, nil
	return o
}

// Validate is [Options.Validate] for a search.
func (o SearchOptions) Validate() error { return o.withDefaults().Options.Validate() }

// space is where it searches: with the faults that the fleet and the subject support.
func (o SearchOptions) space() search.Space {
	verbs := []fault.Verb{
		fault.Kill, fault.Pause, fault.Cut, fault.CutReplies, fault.Delay, fault.RestartEmpty, fault.FlushAll,
	}
	if !subject.HasOwnClock(o.Subject) {
		verbs = append(verbs, fault.ClientClock)
	}
	if fleet.ClocksAvailable(fleet.Kind(o.Fleet)) == nil {
		verbs = append(verbs, fault.Clock)
	}
	if fleet.Kind(o.Fleet) != fleet.Embedded {
		verbs = append(verbs, fault.Promote)
	}
	calm := calmOf(o.Length)
	return search.Space{
		Nodes: fleet.Names(o.Nodes), Clients: scenario.PlannedActors, Verbs: verbs, From: calm, Until: o.Length - calm, Scale: o.TTL,
	}
}

// Search runs schedules of faults until one is unsafe, and shrinks that one. An error means that it ended early. If there
// is a result beside the error, it is what was found until then.
func Search(ctx context.Context, o SearchOptions) (*SearchResult, error) {
	o = o.withDefaults()
	if _, _, err := o.validate(); err != nil {
		return nil, err
	}
	s := &searching{SearchOptions: o, search: search.New(o.space(), o.Seed, !o.Random), began: time.Now()}
	err := s.look(ctx)
	s.looked = time.Since(s.began)
	if closest, known := s.search.Closest(); known {
		s.result.Closest = &closest
	}
	if s.result.Found != nil && ctx.Err() == nil && o.Shrink > 0 {
		s.shrink(ctx)
	}
	return &s.result, err
}

// searching is a search that goes on.
type searching struct {
	SearchOptions
	search *search.Search
	began  time.Time
	looked time.Duration // how long it took to run the result's Runs
	result SearchResult
}

func (s *searching) say(format string, args ...any) {
	if s.Log != nil {
		fmt.Fprintf(s.Log, "%7.1fs  "+format+"\n", append([]any{time.Since(s.began).Seconds()}, args...)...)
	}
}

// timeFor is how long so many runs take, if they take as long as those of the search.
func (s *searching) timeFor(runs int) time.Duration {
	takes := time.Duration(runs) * s.looked / time.Duration(s.result.Runs)
	if takes < time.Minute {
		return takes.Round(time.Second)
	}
	return takes.Round(10 * time.Second)
}

// run runs a schedule. Every run has the same seed: only the faults differ.
func (s *searching) run(ctx context.Context, schedule fault.Schedule) (*Outcome, error) {
	o := s.Options
	o.Schedule, o.Log = schedule, nil
	return Run(ctx, o)
}

// look runs schedules until one is unsafe.
func (s *searching) look(ctx context.Context) error {
	broken := 0
	for (s.For == 0 || time.Since(s.began) < s.For) && (s.Runs == 0 || s.result.Runs < s.Runs) {
		schedule := s.search.Next()
		outcome, err := s.run(ctx, schedule)
		switch {
		case outcome != nil && outcome.wrong():
			s.result.Runs++
			s.say("run %d: %s: UNSAFE: %s", s.result.Runs, faults(schedule), outcome.headline())
			s.result.Found = &Found{First: schedule, Schedule: schedule, Outcome: outcome}
			return nil
		case ctx.Err() != nil:
			return fmt.Errorf("chaos: search: %w", context.Cause(ctx))
		case errors.Is(err, ErrUnable):
			return err
		}
		s.result.Runs++
		if err == nil && outcome.Error != "" {
			err = errors.New(outcome.Error)
		}
		if err != nil {
			s.result.Aborted++
			s.say("run %d: %s: aborted: %v", s.result.Runs, faults(schedule), err)
			if broken++; broken == mostBroken {
				return fmt.Errorf("chaos: search: %d runs one after another were aborted: %w", broken, err)
			}
			continue
		}
		broken = 0
		s.tell(schedule, outcome)
	}
	return nil
}

// tell judges a run without a violation.
func (s *searching) tell(schedule fault.Schedule, o *Outcome) {
	tried, how := search.Tried{Schedule: schedule}, string(o.Verdict)
	switch {
	case o.Acquired == 0:
		s.result.Idle++
		how += ", nobody acquired the lock"
	case o.Margin != nil:
		tried.Margin, tried.Known = time.Duration(*o.Margin*float64(time.Millisecond)), true
		how += fmt.Sprintf(", margin %v", tried.Margin.Round(10*time.Microsecond))
	}
	if o.Acquired > 0 && o.Verdict == check.Unsure {
		s.result.Unsure++
	}
	s.search.Tell(tried)
	s.say("run %d: %s: %s", s.result.Runs, faults(schedule), how)
}

// shrink makes the schedule that was found smaller, and runs what is left some times more.
func (s *searching) shrink(ctx context.Context) {
	found, runs, hits := s.result.Found, 0, shrinkHits
	s.say("it is made smaller, in at most %d more runs: at most some %v", s.Shrink+confirmRuns, s.timeFor(s.Shrink+confirmRuns))
	unsafe := func(schedule fault.Schedule) bool {
		for got, missed := 0, 0; runs < s.Shrink && missed <= shrinkTries-hits; {
			runs++
			outcome := s.try(ctx, schedule)
			if outcome == nil {
				missed++
				continue
			}
			if got++; got == hits {
				found.Schedule, found.Outcome = schedule, outcome
				return true
			}
		}
		return false
	}
	if !unsafe(found.First) {
		s.say("it is not always unsafe")
		hits = 1
	}
	search.Shrink(found.First, func(smaller fault.Schedule) bool {
		enough := unsafe(smaller)
		if enough {
			s.say("unsafe too: %s", faults(smaller))
		}
		return enough
	})
	s.say("how often it is unsafe: %d more runs, some %v", confirmRuns, s.timeFor(confirmRuns))
	for ; ctx.Err() == nil && found.Again < confirmRuns; found.Again++ {
		if outcome := s.try(ctx, found.Schedule); outcome != nil {
			found.Unsafe, found.Outcome = found.Unsafe+1, outcome
		}
	}
}

// try runs a schedule and returns the outcome if it is unsafe. A run that was aborted shows nothing.
func (s *searching) try(ctx context.Context, schedule fault.Schedule) *Outcome {
	if ctx.Err() != nil {
		return nil
	}
	if outcome, _ := s.run(ctx, schedule); outcome != nil && outcome.wrong() {
		return outcome
	}
	return nil
}

// wrong reports whether the run shows that the subject is wrong.
func (o *Outcome) wrong() bool { return o.Verdict == check.Unsafe || len(o.Panics) > 0 }

// headline is the first thing that was wrong.
func (o *Outcome) headline() string {
	if len(o.Violations) > 0 {
		return o.Violations[0].Text
	}
	return "the subject panicked"
}

func faults(s fault.Schedule) string {
	if len(s) == 1 {
		return "1 fault"
	}
	return fmt.Sprintf("%d faults", len(s))
}
