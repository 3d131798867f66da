package fence_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/fence"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// onRedis runs a test on the embedded server and on a real one.
func onRedis(t *testing.T, test func(t *testing.T, dial func() redis.Conn)) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			url := fleettest.Start(t, kind, fleet.Options{Nodes: 1}).URLs()[0]
			test(t, func() redis.Conn { return dial(t, url) })
		})
	}
}

func dial(t *testing.T, url string) redis.Conn {
	conn, err := redis.DialURL(url)
	require.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return conn
}

func requireValue(t *testing.T, conn redis.Conn, key, value string) {
	t.Helper()
	got, err := redis.String(conn.Do("GET", key))
	require.NoError(t, err)
	require.Equal(t, value, got)
}

func TestSetRefusesASmallerTokenAndWritesNothing(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		require.NoError(t, fence.Set(ctx, conn, "invoice/42", "by 33", 33))
		require.NoError(t, fence.Set(ctx, conn, "invoice/42", "by 34", 34))
		requireStale(t, fence.Set(ctx, conn, "invoice/42", "late", 33), "invoice/42", 33, 34)
		requireValue(t, conn, "invoice/42", "by 34")
		requireStale(t, fence.Check(ctx, conn, "invoice/42", 33), "invoice/42", 33, 34)
		require.NoError(t, fence.Set(ctx, conn, "invoice/42", []byte("again by 34"), 34))
		requireValue(t, conn, "invoice/42", "again by 34")
		require.NoError(t, fence.Set(ctx, conn, "invoice/43", "", 1), "another resource has tokens of its own")
		requireValue(t, conn, "invoice/43", "")
	})
}

// Otherwise an older holder could write after the newer one has read.
func TestCheckKeepsOlderHoldersOutBeforeTheFirstWrite(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		require.NoError(t, fence.Check(ctx, conn, "invoice/42", 34))
		requireStale(t, fence.Set(ctx, conn, "invoice/42", "late", 33), "invoice/42", 33, 34)
		exists, err := redis.Bool(conn.Do("EXISTS", "invoice/42"))
		require.NoError(t, err)
		require.False(t, exists)
	})
}

// Real tokens have 16 digits. Lua prints only 14 digits of a number, and calculates with doubles.
func TestRedisComparesAllDigitsOfAToken(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		for _, token := range []uint64{9, 10, 1 << 52, 1<<52 + 1, 1<<53 - 2, 1<<53 - 1} {
			require.NoError(t, fence.Set(ctx, conn, "invoice/42", fmt.Sprint(token), token))
			requireValue(t, conn, "invoice/42", fmt.Sprint(token))
			requireValue(t, conn, fence.TokenKey("invoice/42"), fmt.Sprint(token))
			requireStale(t, fence.Set(ctx, conn, "invoice/42", "late", token-1), "invoice/42", token-1, token)
		}
	})
}

func TestRedisRefusesWhatIsNotAFencingToken(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		for _, token := range wrongTokens {
			require.ErrorIs(t, fence.Set(ctx, conn, "invoice/42", "x", token), fence.ErrInvalid)
			require.ErrorIs(t, fence.Check(ctx, conn, "invoice/42", token), fence.ErrInvalid)
		}
		script := redis.NewScript(2, fence.Script("return redis.call('SET', KEYS[2], ARGV[2])"))
		for _, token := range []string{"0", "-1", "", "1.5", "33 ", "033", "0x21", "1e3", "nan", "inf", "9007199254740992",
			"18446744073709551615", strings.Repeat("9", 400)} {
			_, err := script.Do(conn, "tokens", "invoice/42", token, "x")
			require.ErrorContains(t, err, "not a fencing token", token)
			require.NotErrorIs(t, fence.RedisError(err, "invoice/42", 33), fence.ErrStale)
		}
		keys, err := redis.Strings(conn.Do("KEYS", "*"))
		require.NoError(t, err)
		require.Empty(t, keys)
	})
}

func TestAScriptRunsOtherCommandsUnderAToken(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		conn := dial()
		run := func(script *redis.Script, token int, args ...any) (any, error) {
			return script.Do(conn, append([]any{fence.TokenKey("invoice/42"), "invoice/42", token}, args...)...)
		}
		add := redis.NewScript(2, fence.Script("return redis.call('HINCRBY', KEYS[2], 'paid', ARGV[2])"))
		del := redis.NewScript(2, fence.Script("return redis.call('DEL', KEYS[2])"))
		sum, err := redis.Int(run(add, 34, 5))
		require.NoError(t, err)
		require.Equal(t, 5, sum)
		_, err = run(add, 33, 5)
		requireStale(t, fence.RedisError(err, "invoice/42", 33), "invoice/42", 33, 34)
		requireStale(t, fence.RedisError(fmt.Errorf("pay: %w", err), "invoice/42", 33), "invoice/42", 33, 34)
		requireStale(t, fence.RedisError(fmt.Errorf("pay: %w: %w", context.Canceled, err), "invoice/42", 33), "invoice/42", 33, 34)
		_, err = run(del, 34)
		require.NoError(t, err)
		_, err = run(add, 33, 5)
		require.ErrorContains(t, err, "FENCED 34", "the token of a deleted value stays")
		_, err = run(add, 35)
		require.Error(t, err)
		require.Equal(t, err, fence.RedisError(err, "invoice/42", 35), "HINCRBY lacks an argument, which is not a stale token")
	})
}

func TestRedisErrorLeavesOtherErrorsAlone(t *testing.T) {
	require.NoError(t, fence.RedisError(nil, "invoice/42", 33))
	for _, err := range []error{errors.New("FENCED"), errors.New("FENCED many"), errors.New("not FENCED 34"), redis.ErrNil} {
		require.Equal(t, err, fence.RedisError(err, "invoice/42", 33))
	}
}

// What is in the way is not a token, so nothing may be written.
func TestSomethingElseAtTheTokenKeyIsAnError(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		for _, command := range []string{"SET fence:{a} word", "RPUSH fence:{b} 1", "SET fence:{c} -", "SET fence:{d} nan"} {
			words := strings.Fields(command)
			_, err := conn.Do(words[0], words[1], words[2])
			require.NoError(t, err)
			key := strings.Trim(strings.TrimPrefix(words[1], "fence:"), "{}")
			err = fence.Set(ctx, conn, key, "x", 33)
			require.Error(t, err, command)
			require.NotErrorIs(t, err, fence.ErrStale)
			exists, err := redis.Bool(conn.Do("EXISTS", key))
			require.NoError(t, err)
			require.False(t, exists, command)
		}
	})
}

func TestTokenKeysAreDifferentForDifferentKeys(t *testing.T) {
	seen := map[string]string{}
	for _, key := range []string{"", "a", "{a}", "{a}:fence", "fence:{a}", "fence:{{a}}", "a}", "{a", "{}a", "{}{a}", "b{a}", "{a}{b}",
		"a:fence", "{a}:fence:fence", "fence:{a}:fence"} {
		at := fence.TokenKey(key)
		require.Empty(t, seen[at], "%q has the token key of %q", key, seen[at])
		seen[at] = "the key " + key
	}
}

// Otherwise a value would lower the token of another key, and its older holders could write again.
func TestAKeyWhereTheTokenOfAnotherKeyIsStoredIsRefused(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		for _, key := range []string{"", "a", "}", "{a}", "doc/{a}", "a:fence"} {
			at := fence.TokenKey(key)
			require.NoError(t, fence.Set(ctx, conn, key, "by 34", 34), "%q", key)
			require.ErrorIs(t, fence.Set(ctx, conn, at, "1", 1), fence.ErrInvalid, "%q", at)
			require.ErrorIs(t, fence.Check(ctx, conn, at, 1), fence.ErrInvalid, "%q", at)
			require.ErrorIs(t, fence.Set(ctx, conn, fence.TokenKey(at), "1", 1), fence.ErrInvalid, "%q", at)
			requireStale(t, fence.Set(ctx, conn, key, "late", 33), key, 33, 34)
		}
		for _, key := range []string{":fence", "fence:", "fence:{", "{}:fence:", "fence:{a}b"} {
			require.NoError(t, fence.Set(ctx, conn, key, "is no token key", 34), "%q", key)
		}
	})
}

// A server of a cluster runs a script only if all its keys are in one slot, and only if it declares them.
func TestSetWorksInACluster(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1, Args: []string{"--cluster-enabled", "yes"}})
	conn := dial(t, f.URLs()[0])
	for slot := 0; slot < 16384; slot += 1024 {
		command := redis.Args{"ADDSLOTS"}
		for s := slot; s < slot+1024; s++ {
			command = append(command, s)
		}
		_, err := conn.Do("CLUSTER", command...)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool {
		info, err := redis.String(conn.Do("CLUSTER", "INFO"))
		return err == nil && strings.Contains(info, "cluster_state:ok")
	}, time.Minute, 20*time.Millisecond)
	for _, key := range []string{"a", "invoice/42", "{user/7}:name", "x{user/7}y{z}", "a{b", ":fence"} {
		require.NoError(t, fence.Set(t.Context(), conn, key, "value", 34), key)
		requireStale(t, fence.Set(t.Context(), conn, key, "late", 33), key, 33, 34)
		requireValue(t, conn, key, "value")
	}
	err := fence.Set(t.Context(), conn, "{}a", "value", 34) // a tag that no other key can have
	require.ErrorContains(t, err, "CROSSSLOT")
}

// Holders add to a list that only the token protects: read, and write what follows. Each checks its token first. The
// list then has the tokens in order, none of them overwritten by an older holder.
func TestReadingAndWritingUnderATokenLosesNothing(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		var mu sync.Mutex // guards written
		written := map[string]bool{}
		var wg sync.WaitGroup
		for _, token := range []uint64{4, 1, 8, 3, 7, 2, 6, 5} {
			conn := dial()
			wg.Go(func() {
				err := appendUnder(t.Context(), conn, token)
				if err != nil {
					assert.ErrorIs(t, err, fence.ErrStale)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				written[fmt.Sprint(token)] = true
			})
		}
		wg.Wait()
		text, err := redis.String(dial().Do("GET", "list"))
		require.NoError(t, err)
		list := strings.Fields(text)
		require.True(t, slices.IsSorted(list), "%v", list)
		require.Equal(t, "8", list[len(list)-1])
		for _, token := range list {
			delete(written, token)
		}
		require.Empty(t, written, "acknowledged and overwritten; there is %v", list)
	})
}

func appendUnder(ctx context.Context, conn redis.Conn, token uint64) error {
	if err := fence.Check(ctx, conn, "list", token); err != nil {
		return err
	}
	list, err := redis.String(conn.Do("GET", "list"))
	if err != nil && !errors.Is(err, redis.ErrNil) {
		return err
	}
	return fence.Set(ctx, conn, "list", fmt.Sprintf("%s %d", list, token), token)
}

// Redis replies QUEUED and compares at EXEC, so nil would promise what may not come true.
func TestNoTokenIsAcceptedInATransactionBeforeItsEnd(t *testing.T) {
	onRedis(t, func(t *testing.T, dial func() redis.Conn) {
		ctx, conn := t.Context(), dial()
		require.NoError(t, fence.Set(ctx, conn, "invoice/42", "by 34", 34))
		_, err := conn.Do("MULTI")
		require.NoError(t, err)
		for _, err := range []error{fence.Check(ctx, conn, "invoice/42", 33), fence.Set(ctx, conn, "invoice/42", "late", 33)} {
			require.ErrorContains(t, err, "QUEUED")
			require.NotErrorIs(t, err, fence.ErrStale)
			require.NotErrorIs(t, err, fence.ErrInvalid)
		}
		_, err = conn.Do("DISCARD")
		require.NoError(t, err)
		require.NoError(t, fence.Check(ctx, conn, "invoice/42", 34))
	})
}

func TestSetReturnsTheErrorOfABrokenConnection(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	conn := dial(t, f.URLs()[0])
	require.NoError(t, f.Nodes()[0].Kill())
	err := fence.Set(t.Context(), conn, "invoice/42", "x", 33)
	require.Error(t, err)
	require.NotErrorIs(t, err, fence.ErrStale)
	require.NotErrorIs(t, err, fence.ErrInvalid)
}

func TestSetStopsWaitingWhenItsContextEnds(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	conn := dial(t, f.URLs()[0])
	require.NoError(t, f.Nodes()[0].Pause())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- fence.Set(ctx, conn, "invoice/42", "x", 33) }()
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.NoError(t, f.Nodes()[0].Resume())
}
