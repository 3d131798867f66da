package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// D4: What follows a lost round of Adopt depends on what each node said. Adopters that come at the same moment raise each
// other's ballots, also while a node is away.
func TestWhatFollowsALostAdoption(t *testing.T) {
	grant, away := answer{vote: granted}, answer{vote: unknown, err: errSilent}
	because := func(why reason, owner string) answer {
		return answer{vote: denied, denial: &denial{reason: why, owner: owner}}
	}
	low, has, lacks, read := because(stale, ""), because(held, "another"), because(missing, ""), because(held, ownedByReaders)
	for name, c := range map[string]struct {
		answers []answer
		next    afterLoss
		kind    error
	}{
		"another has a quorum":                     {[]answer{has, has, has, away}, isDead, ErrTicketUsed},
		"too few nodes have it for the ticket":     {[]answer{lacks, lacks, grant, grant}, isDead, ErrTicketExpired},
		"readers have a quorum":                    {[]answer{read, read, read, away}, isDead, ErrTicketUsed},
		"readers have the rest of it":              {[]answer{read, read, lacks, lacks}, isDead, ErrTicketExpired},
		"readers have some, and one is away":       {[]answer{read, lacks, away, away}, isDead, ErrTicketExpired},
		"readers have one, and the ticket has it":  {[]answer{grant, grant, read, grant}, isUnknown, ErrNoQuorum},
		"readers have one, and one is away":        {[]answer{grant, grant, read, away}, isUnknown, ErrNoQuorum},
		"readers have one, and another has one":    {[]answer{grant, grant, read, has}, askAgain, ErrHeld},
		"others have some nodes":                   {[]answer{has, because(held, "a third"), grant, away}, askAgain, ErrHeld},
		"another has one, and one is away":         {[]answer{grant, grant, has, away}, askAgain, ErrHeld},
		"one has a larger ballot, and one is away": {[]answer{grant, grant, low, away}, askAgain, ErrHeld},
		"all have a larger ballot":                 {[]answer{low, low, low, low}, askAgain, ErrHeld},
		"two are away":                             {[]answer{grant, low, away, away}, isUnknown, ErrNoQuorum},
		"all are away":                             {[]answer{away, away, away, away}, isUnknown, ErrNoQuorum},
	} {
		r := newRound(plan{}, 4, 3, -1)
		for i, a := range c.answers {
			r.record(i, a)
		}
		next, kind := new(Ticket).judge(r)
		require.Equal(t, c.next, next, name)
		require.Equal(t, c.kind, kind, name)
	}
}
