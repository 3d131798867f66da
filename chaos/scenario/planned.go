package scenario

import (
	"context"
	"time"

	"github.com/quorumlock/redlock/chaos/check"
	"github.com/quorumlock/redlock/chaos/fault"
	"github.com/quorumlock/redlock/chaos/traffic"
)

// PlannedName is the name of the scenario of a schedule.
const PlannedName = check.Planned

// PlannedActors is how many clients contend for the lock, from client 1 on.
const PlannedActors = 3

// Planned is the scenario of a schedule that somebody wrote, or that a search made. It is none of All. Three clients
// contend for the lock, and most holders keep it for long, because a fault can only harm a lock that is held.
func Planned(schedule fault.Schedule) Scenario {
	s := Scenario{
		Name:   PlannedName,
		Proves: "With the faults of this schedule, the lock has one owner at a time.",
		Costs:  "no grants while a majority is down or in quarantine",
		Actors: PlannedActors,
		Needs: Needs{
			Replica:     schedule.Has(fault.Follow, fault.Lag, fault.Promote, fault.Detach, fault.Failback),
			Server:      schedule.Has(fault.Unsubscribe),
			Clocks:      schedule.Has(fault.Clock),
			ClientClock: schedule.Has(fault.ClientClock),
		},
		spares: schedule.Spares(),
		Play: func(ctx context.Context, s *Stage) error {
			stop := s.contendAt(ctx, s.longPace(), s.A, s.B, s.C)
			defer stop()
			began := time.Now()
			if err := s.Site.Run(ctx, schedule); err != nil {
				return err
			}
			return s.Sleep(ctx, s.Length*4/5-time.Since(began)) // so that what the last fault did can be seen
		},
	}
	for _, t := range schedule {
		s.Faults = append(s.Faults, t.String())
	}
	return s
}

// longPace is a Pace in which leases that are not renewed often end by themselves, and are released later. Then the next
// client gets the lock when the nodes let go of it, and the time until then shows how close that was.
func (s *Stage) longPace() (p traffic.Pace) {
	p = s.Pace()
	p.Long = 2 * s.TTL
	return p
}

// PlannedLength is how long a run should be, with leases of this length. A lease can begin, be hurt and end in it.
func PlannedLength(ttl time.Duration) time.Duration { return max(time.Second, 5*ttl) }
