package redlock

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A lookupServer is a name server of which each answer takes a time.
type lookupServer struct {
	takes time.Duration
	says  string
	asked int
}

func (s *lookupServer) lookups() *lookups {
	return &lookups{ask: func(ctx context.Context, _ string) ([]net.IPAddr, error) {
		s.asked++
		select {
		case <-time.After(s.takes):
			return []net.IPAddr{{IP: net.ParseIP(s.says)}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
}

// A resolver waits five seconds for a name server that is away before it asks the next one. An attempt to connect takes one.
func TestALookupThatTakesLongerThanAnAttemptIsOfUseToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lookupServer{takes: 5 * time.Second, says: "192.0.2.1"}
		l := server.lookups()
		attempt := func() ([]net.IPAddr, error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			return l.find(ctx, t.Context(), "a.host")
		}
		for range 4 {
			_, err := attempt()
			require.EqualError(t, err, "lookup a.host: the name server (DNS) has not answered yet")
			time.Sleep(100 * time.Millisecond)
		}
		found, err := attempt()
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1", found[0].String())
		require.Equal(t, 1, server.asked)

		// An address may change, so the host is asked for again when the attempt that had no time left has had its chance.
		server.takes, server.says = 0, "192.0.2.2"
		found, err = attempt()
		require.NoError(t, err)
		require.Equal(t, "192.0.2.1", found[0].String())
		time.Sleep(lookupKept)
		synctest.Wait()
		found, err = attempt()
		require.NoError(t, err)
		require.Equal(t, "192.0.2.2", found[0].String())
	})
}

func TestALookupEndsWithItsOwnerAndNobodyElseFailsByThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := lookupServer{takes: 5 * time.Second, says: "192.0.2.1"}
		l := server.lookups()
		owner, end := context.WithTimeout(t.Context(), 2*time.Second)
		defer end()
		failed := make(chan error, 1)
		go func() {
			_, err := l.find(owner, owner, "a.host")
			failed <- err
		}()
		synctest.Wait()
		begun := time.Now()
		_, err := l.find(t.Context(), t.Context(), "a.host")
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, time.Since(begun))
		require.Error(t, <-failed)
		require.Equal(t, 2, server.asked)
	})
}

func TestALookupThatFindsNothingInTimeEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := (&lookupServer{takes: time.Hour}).lookups()
		begun := time.Now()
		_, err := l.find(t.Context(), t.Context(), "a.host")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, lookupMax, time.Since(begun))
	})
}

// A client connects to a host whose name server takes longer than an attempt.
func TestAHostWhoseNameServerIsSlowIsConnectedTo(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	e, err := Node{URL: "redis://a.host.invalid:" + port}.endpoint("Nodes[0]", nil)
	require.NoError(t, err)
	answer := make(chan struct{})
	e.names = &lookups{ask: func(ctx context.Context, host string) ([]net.IPAddr, error) {
		require.Equal(t, "a.host.invalid", host)
		select {
		case <-answer:
			return []net.IPAddr{{IP: net.ParseIP("127.0.0.1")}}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	attempt, end := context.WithCancel(t.Context())
	end()
	_, err = e.dialNet(attempt, t.Context(), time.Second)
	require.ErrorContains(t, err, "has not answered yet")
	close(answer)
	link, err := e.dialNet(t.Context(), t.Context(), time.Second)
	require.NoError(t, err)
	require.NoError(t, link.Close())
}

// A host with several addresses, of which the first does not answer, is reached by the next one.
func TestAHostIsReachedByTheAddressThatAnswers(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	require.NoError(t, err)
	e, err := Node{URL: "redis://a.host.invalid:" + port}.endpoint("Nodes[0]", nil)
	require.NoError(t, err)
	for _, of := range []struct {
		addresses []string
		reached   bool
	}{{[]string{"::1", "127.0.0.1"}, true}, {[]string{"127.0.0.1", "::1"}, true}, {[]string{"::1"}, false}} {
		e.names = &lookups{ask: func(context.Context, string) (found []net.IPAddr, err error) {
			for _, a := range of.addresses {
				found = append(found, net.IPAddr{IP: net.ParseIP(a)})
			}
			return found, nil
		}}
		link, err := e.dialNet(t.Context(), t.Context(), time.Second)
		if !of.reached {
			var network *net.OpError
			require.True(t, errors.As(err, &network), "%v", err)
			continue
		}
		require.NoError(t, err)
		require.NoError(t, link.Close())
	}
}
