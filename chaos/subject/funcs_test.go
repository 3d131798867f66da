package subject

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
)

// bare has no more functions than it must.
func bare() Functions[string, string] {
	return Functions[string, string]{
		Connect: func(_ context.Context, o Options) (string, error) { return o.URLs[0], nil },
		Lock: func(_ context.Context, client, name string, ttl time.Duration) (string, error) {
			return client + " " + name + " " + ttl.String(), nil
		},
		Unlock: func(_ context.Context, client, lease string) error { return errors.New(client + " unlocks " + lease) },
	}
}

func acquireOf(t *testing.T, s Subject, ttl time.Duration) (Client, Lease) {
	client, err := s.Open(t.Context(), Options{URLs: []string{"redis://a"}, TTL: ttl})
	require.NoError(t, err)
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	return client, lease
}

func TestALockOfThreeFunctionsIsJudgedByItsTTL(t *testing.T) {
	client, lease := acquireOf(t, bare(), time.Hour)
	require.Equal(t, "functions", bare().Name())
	require.True(t, lease.Valid())
	require.Nil(t, lease.Lost())
	require.Zero(t, lease.Fence())
	require.Empty(t, lease.Token())
	require.Equal(t, []string{history.Validity, history.FencingTokens}, Untold(lease))
	require.EqualError(t, lease.Release(t.Context()), "redis://a unlocks redis://a k 1h0m0s")
	require.NoError(t, client.Close())
	_, lease = acquireOf(t, bare(), time.Nanosecond)
	require.False(t, lease.Valid())
}

// The TTL of the lock may have begun with the first try, so a holder that waited longer does not know that it holds it.
func TestTheTTLOfALockOfFunctionsCountsFromTheCall(t *testing.T) {
	slow := bare()
	slow.Lock = func(context.Context, string, string, time.Duration) (string, error) {
		time.Sleep(2 * time.Millisecond)
		return "", nil
	}
	_, lease := acquireOf(t, slow, time.Millisecond)
	require.False(t, lease.Valid())
}

func TestWhatALockOfFunctionsSaysIsAsked(t *testing.T) {
	lost := make(chan struct{})
	whole := bare()
	whole.Title = "mine"
	whole.Disconnect = func(client string) error { return errors.New("disconnected " + client) }
	whole.Valid = func(lease string) bool { return lease == "redis://a k 1ns" }
	whole.Lost = func(string) <-chan struct{} { return lost }
	whole.Fence = func(lease string) uint64 { return uint64(len(lease)) }
	whole.Token = func(lease string) string { return "token of " + lease }
	client, lease := acquireOf(t, whole, time.Nanosecond)
	require.Equal(t, "mine", whole.Name())
	require.True(t, lease.Valid(), "and its TTL is over")
	require.Equal(t, (<-chan struct{})(lost), lease.Lost())
	require.EqualValues(t, 15, lease.Fence())
	require.Equal(t, "token of redis://a k 1ns", lease.Token())
	require.Empty(t, Untold(lease))
	require.EqualError(t, client.Close(), "disconnected redis://a")
	whole.Lock = func(context.Context, string, string, time.Duration) (string, error) { return "", ErrRefused }
	client, err := whole.Open(t.Context(), Options{URLs: []string{"redis://a"}})
	require.NoError(t, err)
	_, err = client.Acquire(t.Context(), "k")
	require.ErrorIs(t, err, ErrRefused)
}

func TestAFunctionThatIsMissingIsNamed(t *testing.T) {
	for want, remove := range map[string]func(*Functions[string, string]){
		"Functions.Connect is nil; it is required": func(f *Functions[string, string]) { f.Connect = nil },
		"Functions.Lock is nil; it is required":    func(f *Functions[string, string]) { f.Lock = nil },
		"Functions.Unlock is nil; it is required":  func(f *Functions[string, string]) { f.Unlock = nil },
	} {
		f := bare()
		remove(&f)
		_, err := f.Open(t.Context(), Options{})
		require.EqualError(t, err, want)
	}
}
