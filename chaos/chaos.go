// Package chaos tests locks under faults. It runs a lock, the subject, on a fleet of Redis nodes. It injects the faults
// of a scenario, records what happens, and judges the record.
//
//	outcome, err := chaos.Run(ctx, chaos.Options{Scenario: "failover", Subject: myLock{}})
//
// A subject is any lock library with the few methods that package subject defines.
package chaos

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
	"github.com/quorumlock/redlock/internal/fleet"
)

// Options say what is tested, and how. Only Subject is required.
type Options struct {
	Scenario string          // its name, see scenario.All. Default: "control"
	Schedule fault.Schedule  // the faults, instead of a scenario; see scenario.Planned. Default: none
	Subject  subject.Subject // the lock
	Fleet    string          // "embedded", "process" or "docker". Default: "process"
	Image    string          // of a docker fleet. Default: an official one, or one made from this machine's redis-server
	Nodes    int             // Default 5
	Clients  int             // including those of the script. Default 8
	Length   time.Duration   // of the run; a script may take longer. Default 20s
	TTL      time.Duration   // of the leases. Default 1s, at least 100ms
	Seed     uint64          // the same seed gives the same faults and pauses. Default 1
	Replay   string          // the command that repeats the run, for the record
	// Child is a command that calls traffic.ServeChild with its standard input and output. Scenarios that stop or kill
	// a client need it. Default: none; these scenarios cannot run then.
	Child   []string
	History io.Writer // receives the history as it is recorded. Default: none
	Log     io.Writer // receives the progress, line by line. Default: none
}

// An Outcome is the result of a run.
type Outcome struct {
	check.Result
	// Unmet are expectations of the scenario that were not met. They are about service, not safety, and not part of the
	// verdict.
	Unmet []string `json:"unmet"`
	// Panics are the subject's, each with its stack on the lines below. The traffic ends with the first, and the verdict is
	// never safe.
	Panics []string `json:"panics"`
	// Error is why the run was aborted. What was recorded until then is judged, and the verdict is never safe.
	Error string `json:"error,omitempty"`
	// History is the record, one line per event.
	History []byte `json:"-"`
}

// OK reports whether the verdict is safe and nothing else went wrong.
func (o *Outcome) OK() bool {
	return o.Verdict == check.Safe && len(o.Unmet) == 0 && len(o.Panics) == 0 && o.Error == ""
}

// ErrUnable means that a scenario cannot run here: it was left out, not passed. Errors that say why wrap it.
var ErrUnable = scenario.ErrUnable

const (
	defaultClients = 8
	defaultLength  = 20 * time.Second
	defaultTTL     = time.Second
	minTTL         = 100 * time.Millisecond // less is too noisy on a busy machine
	maxNodes       = 15
	maxClients     = 256
	maxLength      = time.Hour
)

// ErrInvalid means that the Options are wrong. Errors that say what is wrong wrap it.
var ErrInvalid = errors.New("invalid options")

func (o Options) withDefaults() Options {
	switch {
	case o.Scenario == "" && o.Schedule != nil:
		o.Scenario = scenario.PlannedName
	case o.Scenario == "":
		o.Scenario = "control"
	}
	if o.Fleet == "" {
		o.Fleet = string(fleet.Process)
	}
	if o.Nodes == 0 {
		o.Nodes = fleet.DefaultNodes
	}
	if o.Clients == 0 {
		o.Clients = defaultClients
	}
	if o.Length == 0 {
		o.Length = defaultLength
	}
	if o.TTL == 0 {
		o.TTL = defaultTTL
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	return o
}

// play returns what is run.
func (o Options) play() (scenario.Scenario, error) {
	if o.Schedule == nil {
		return scenario.ByName(o.Scenario)
	}
	if o.Scenario != scenario.PlannedName {
		return scenario.Scenario{}, errors.New("there are a Scenario and a Schedule; give one of them")
	}
	return scenario.Planned(o.Schedule), o.Schedule.Check(fleet.Names(o.Nodes), o.Clients)
}

// Validate returns an error that is ErrInvalid if the options are wrong on any machine. Whether this machine can run
// the scenario is found out by Run.
func (o Options) Validate() error {
	o = o.withDefaults()
	_, err := o.play()
	switch {
	case err != nil:
	case o.Subject == nil:
		err = errors.New("there is no Subject")
	case !slices.Contains(fleet.Kinds(), fleet.Kind(o.Fleet)):
		err = fmt.Errorf("%q is no kind of fleet; there are embedded, process and docker", o.Fleet)
	case o.Image != "" && o.Fleet != string(fleet.Docker):
		err = fmt.Errorf("an image is for a docker fleet, not for %s", o.Fleet)
	case o.Nodes < 1 || o.Nodes > maxNodes:
		err = fmt.Errorf("%d nodes; give 1 to %d", o.Nodes, maxNodes)
	case o.Clients < 1 || o.Clients > maxClients:
		err = fmt.Errorf("%d clients; give 1 to %d", o.Clients, maxClients)
	case o.Length < time.Second || o.Length > maxLength:
		err = fmt.Errorf("a length of %v; give %v to %v", o.Length, time.Second, maxLength)
	case o.TTL < minTTL || o.TTL > o.Length*10:
		err = fmt.Errorf("a TTL of %v; give %v to %v, which is ten times the length", o.TTL, minTTL, o.Length*10)
	}
	if err != nil {
		return fmt.Errorf("chaos: %w: %w", ErrInvalid, err)
	}
	return nil
}

// validate also checks whether the scenario can run here.
func (o Options) validate() (Options, scenario.Scenario, error) {
	o = o.withDefaults()
	if err := o.Validate(); err != nil {
		return o, scenario.Scenario{}, err
	}
	play, err := o.play()
	if err == nil {
		err = play.Able(fleet.Kind(o.Fleet), o.Nodes, o.Clients, o.Child)
	}
	if err == nil && play.Needs.ClientClock && subject.HasOwnClock(o.Subject) {
		err = fmt.Errorf("%s: %w: the wall clock of this subject's clients cannot be set", play.Name, ErrUnable)
	}
	if err != nil {
		return o, play, fmt.Errorf("chaos: %w", err)
	}
	o.TTL = max(o.TTL, play.MinTTL)
	return o, play, nil
}

// Run tests a subject. An error means that the run did not come to its end: the scenario cannot run here (ErrUnable), ctx
// ended, or something other than the subject failed. If there is an outcome beside the error, it is that of what was
// recorded until then: a violation is one, whatever ended the run. When Run returns, everything that it started has
// ended, even if ctx ended before.
func Run(ctx context.Context, o Options) (*Outcome, error) {
	o, play, err := o.validate()
	if err != nil {
		return nil, err
	}
	var recorded bytes.Buffer
	var to io.Writer = &recorded
	if o.History != nil {
		to = io.MultiWriter(&recorded, o.History)
	}
	r := &run{Options: o, play: play, to: to}
	if err = r.whole(ctx); err != nil {
		err = fmt.Errorf("chaos: %s: %w", o.Scenario, err)
	}
	switch {
	case !r.ended:
		return nil, err
	case err == nil && errors.Is(r.broken, fleet.ErrUnsupported):
		return nil, fmt.Errorf("chaos: %s: %w: %w", o.Scenario, ErrUnable, r.broken)
	}
	outcome := &Outcome{Unmet: r.stage.Unmet(), Panics: r.log.Panics(), History: recorded.Bytes()}
	if r.broken != nil {
		outcome.Error = r.broken.Error()
	}
	var wrong error
	if outcome.Result, wrong = check.JudgeReader(bytes.NewReader(recorded.Bytes())); wrong != nil {
		return nil, errors.Join(err, fmt.Errorf("chaos: %s: %w", o.Scenario, wrong))
	}
	outcome.doubt()
	return outcome, err
}

// doubt makes a run unsure that was aborted, or whose subject panicked: what it did not come to may have been a violation.
func (o *Outcome) doubt() {
	if (o.Error != "" || len(o.Panics) > 0) && o.Verdict == check.Safe {
		o.Verdict = check.Unsure
	}
}

// Judge judges a history that Run has recorded. Its outcome is that of the run.
func Judge(events []history.Event) (*Outcome, error) {
	result, err := check.Judge(events)
	if err != nil {
		return nil, fmt.Errorf("chaos: %w", err)
	}
	outcome := &Outcome{Result: result, Unmet: []string{}, Panics: []string{}}
	for _, e := range events {
		unmet, isUnmet := strings.CutPrefix(e.Text, scenario.UnmetNote)
		switch {
		case e.Kind != history.Note:
		case e.Error != "" && e.Client > 0:
			outcome.Panics = append(outcome.Panics, e.Error)
		case e.Error != "":
			outcome.Error = e.Error
		case isUnmet:
			outcome.Unmet = append(outcome.Unmet, unmet)
		}
	}
	outcome.doubt()
	return outcome, nil
}

// header is the first line of the history.
func (r *run) header(nodes []string) history.Run {
	kind := subject.KindOf(r.Subject)
	return history.Run{
		Lock: kind.Lock, Permits: kind.Permits, Observed: observedLocks(),
		Scenario: r.play.Name, Subject: r.Subject.Name(), Fleet: r.Fleet, Nodes: nodes, Clients: r.Clients,
		Seed: r.Seed, Seconds: math.Round(r.Length.Seconds()*1000) / 1000, TTL: int64(r.TTL),
		Orphan: int64(float64(r.TTL) * r.play.Orphan), Quorum: subject.Quorum(r.Subject, len(nodes)), Replay: r.Replay, Proves: r.play.Proves,
	}
}
