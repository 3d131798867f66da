package redlock

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// L2: Close must see a lease that the scheduler has taken out to renew. Nothing comes back into the scheduler after
// that.
func TestDrainReturnsAlsoTheHoldThatIsBeingTicked(t *testing.T) {
	s := newScheduler(SystemClock())
	ticked, queued, late := &ownership{place: -1}, &ownership{place: -1}, &ownership{place: -1}
	s.set(ticked, 1)
	s.set(queued, 10)
	h, _ := s.next(5)
	require.Same(t, ticked, h)
	require.ElementsMatch(t, []*ownership{ticked, queued}, s.drain())
	s.setAgain(ticked, 7) // at the end of its tick
	s.set(late, 7)        // a lease that begins now
	require.Empty(t, s.drain())

	s = newScheduler(SystemClock())
	s.set(ticked, 1)
	_, _ = s.next(5)
	s.setAgain(ticked, 7)
	require.Equal(t, []*ownership{ticked}, s.drain(), "once")
}
