//go:build unix

package embeddedredis_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/embeddedredis"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// simulated is a miniredis without a listener, as the simulator uses it.
func simulated(t testing.TB) (*embeddedredis.ServerCommands, func() redis.Conn) {
	m := miniredis.NewMiniRedis()
	m.ClockTTL(true)
	t.Cleanup(m.Close)
	s := embeddedredis.AnswerServerCommands(m, embeddedredis.Identity{RunID: strings.Repeat("a", 40), Port: 7001})
	return s, func() redis.Conn {
		conn, err := s.Dial()
		require.NoError(t, err)
		c := redis.NewConn(conn, soon, soon)
		t.Cleanup(func() { c.Close() })
		return c
	}
}

func TestInfoIsAnsweredEverywhereRedisAnswersIt(t *testing.T) {
	_, connect := simulated(t)
	c := connect()
	for _, sections := range [][]any{{}, {"everything"}, {"server", "MEMORY", "replication"}} {
		info, err := redis.String(c.Do("INFO", sections...))
		require.NoError(t, err)
		for _, want := range []string{
			"run_id:" + strings.Repeat("a", 40), "redis_version:7.0.15", "redis_mode:standalone", "tcp_port:7001",
			"role:master", "maxmemory:0", "maxmemory_policy:noeviction",
		} {
			assert.Contains(t, info, want+"\r\n")
		}
	}
	info, err := redis.String(c.Do("INFO", "server"))
	require.NoError(t, err)
	assert.NotContains(t, info, "maxmemory")
	info, err = redis.String(c.Do("INFO", "nonsense"))
	require.NoError(t, err)
	assert.Empty(t, info)

	info, err = redis.String(c.Do("EVAL", "return redis.call('INFO', 'server')", 0))
	require.NoError(t, err, "in a script")
	assert.Contains(t, info, "run_id:")

	for _, cmd := range []string{"INFO", "CLIENT ID", "ROLE", "CONFIG GET maxmemory*"} {
		_, err := c.Do("MULTI")
		require.NoError(t, err)
		words := strings.Fields(cmd)
		args := make([]any, len(words)-1)
		for i, word := range words[1:] {
			args[i] = word
		}
		queued, err := c.Do(words[0], args...)
		require.NoError(t, err)
		assert.Equal(t, "QUEUED", queued, cmd)
		replies, err := redis.Values(c.Do("EXEC"))
		require.NoError(t, err)
		assert.Len(t, replies, 1)
	}
}

func TestInfoTellsWhatBecameOfTheData(t *testing.T) {
	s, connect := simulated(t)
	c := connect()
	told := func() string {
		info, err := redis.String(c.Do("INFO"))
		require.NoError(t, err)
		return info
	}
	for _, want := range []string{"master_replid2:" + strings.Repeat("0", 40), "second_repl_offset:-1", "evicted_keys:0", "aof_enabled:0"} {
		assert.Contains(t, told(), want+"\r\n")
	}
	was := s.Identity().History
	assert.Contains(t, told(), "master_replid:"+was+"\r\n")
	s.Change(func(id *embeddedredis.Identity) {
		id.Before, id.BeforeOffset, id.History = was, 1001, embeddedredis.NewRunID()
		id.Evicted, id.Fsync = 3, "always"
	})
	for _, want := range []string{"master_replid:" + s.Identity().History, "master_replid2:" + was, "second_repl_offset:1001",
		"evicted_keys:3", "aof_enabled:1"} {
		assert.Contains(t, told(), want+"\r\n")
	}
	settings, err := redis.StringMap(c.Do("CONFIG", "GET", "append*"))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"appendonly": "yes", "appendfsync": "always"}, settings)
}

func TestAUserWhoMayNotUseChannelsIsRefusedThemEverywhere(t *testing.T) {
	s, connect := simulated(t)
	near, far := net.Pipe()
	s.Serve(far, "SUBSCRIBE", "PUBLISH")
	c, other := redis.NewConn(near, soon, soon), connect()
	defer c.Close()
	_, err := c.Do("SUBSCRIBE", "channel")
	require.ErrorContains(t, err, "NOPERM")
	const publish = "return redis.pcall('PUBLISH', 'channel', 'message')"
	_, err = c.Do("EVAL", publish, 0)
	require.ErrorContains(t, err, "NOPERM")
	heard, err := redis.Int(other.Do("EVAL", publish, 0))
	require.NoError(t, err)
	assert.Zero(t, heard)
	_, err = c.Do("SET", "k", "v")
	require.NoError(t, err)
}

func TestRoleAndConfigAreAnswered(t *testing.T) {
	_, connect := simulated(t)
	c := connect()
	role, err := redis.Values(c.Do("ROLE"))
	require.NoError(t, err)
	assert.Equal(t, []any{[]byte("master"), int64(0), []any{}}, role)
	settings, err := redis.StringMap(c.Do("CONFIG", "GET", "maxmemory*"))
	require.NoError(t, err)
	assert.Equal(t, map[string]string{"maxmemory": "0", "maxmemory-policy": "noeviction"}, settings)
}

func TestOddArgumentsAreRefusedAndBreakNothing(t *testing.T) {
	_, connect := simulated(t)
	c := connect()
	for _, args := range [][]any{
		{"CLIENT"}, {"CLIENT", "ID", "x"}, {"CLIENT", "KILL"}, {"CLIENT", "KILL", "ID"}, {"CLIENT", "KILL", "ID", "x"},
		{"CLIENT", "KILL", "ID", "0"}, {"CLIENT", "KILL", "ADDR", "1.2.3.4:5"}, {"CLIENT", "KILL", "SKIPME", "no"},
		{"CLIENT", "KILL", "ID", "1", "SKIPME", "maybe"}, {"CONFIG"}, {"CONFIG", "SET", "a", "b"}, {"ROLE", "x"},
		{"FLEET.ANNOUNCE"}, {"FLEET.ANNOUNCE", "a", "b"}, {"EVAL", "return redis.call('CLIENT', 'ID')", 0},
	} {
		_, err := c.Do(args[0].(string), args[1:]...)
		var refusal redis.Error
		assert.ErrorAs(t, err, &refusal, fmt.Sprint(args...))
	}
	pong, err := c.Do("PING")
	require.NoError(t, err)
	assert.Equal(t, "PONG", pong)
}

func TestAKilledClientIsGoneAtOnce(t *testing.T) {
	for _, kind := range []fleet.Kind{fleet.Embedded, fleet.Process} {
		t.Run(string(kind), func(t *testing.T) {
			n := fleettest.Start(t, kind, fleet.Options{Nodes: 1}).Nodes()[0]
			killer, victim := dial(t, n), dial(t, n)
			id, err := redis.Int64(victim.Do("CLIENT", "ID"))
			require.NoError(t, err)
			own, err := redis.Int64(killer.Do("CLIENT", "ID"))
			require.NoError(t, err)
			assert.NotEqual(t, id, own)

			killed, err := redis.Int(killer.Do("CLIENT", "KILL", "ID", id))
			require.NoError(t, err)
			assert.Equal(t, 1, killed)
			_, err = victim.Receive() // it sends nothing: the connection itself must end
			assert.ErrorContains(t, err, "EOF")

			for _, id := range []int64{id, own, 1 << 40} {
				killed, err = redis.Int(killer.Do("CLIENT", "KILL", "ID", id))
				require.NoError(t, err)
				assert.Zero(t, killed)
			}
			killed, err = redis.Int(killer.Do("CLIENT", "KILL", "ID", own, "SKIPME", "no"))
			require.NoError(t, err)
			assert.Equal(t, 1, killed)
			_, err = killer.Do("PING")
			assert.Error(t, err)
		})
	}
}

// With the kill a client makes sure that commands on its former connection are not executed later.
func TestNothingOfAKilledClientIsAppliedAfterTheKill(t *testing.T) {
	n := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1}).Nodes()[0]
	killer := dial(t, n)
	stop := make(chan struct{})
	var crowd sync.WaitGroup // so that commands wait for each other and could be overtaken
	for range 8 {
		conn := dial(t, n)
		crowd.Add(1)
		go func() {
			defer crowd.Done()
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = conn.Do("EVAL", "for i = 1, 1000 do end", 0)
				}
			}
		}()
	}
	defer crowd.Wait()
	defer close(stop)
	for range 100 {
		victim, err := n.Dial(t.Context(), soon)
		require.NoError(t, err)
		id, err := redis.Int64(victim.Do("CLIENT", "ID"))
		require.NoError(t, err)
		for range 50 {
			require.NoError(t, victim.Send("INCR", "count"))
		}
		require.NoError(t, victim.Flush())
		_, err = killer.Do("CLIENT", "KILL", "ID", id)
		require.NoError(t, err)
		before, err := redis.Int(killer.Do("INCRBY", "count", 0))
		require.NoError(t, err)
		require.NoError(t, victim.Close())
		after, err := redis.Int(killer.Do("INCRBY", "count", 0))
		require.NoError(t, err)
		require.Equal(t, before, after)
	}
}

func TestClientsThatKillEachOtherDoNotHang(t *testing.T) {
	n := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1}).Nodes()[0]
	for range 100 {
		pair := []redis.Conn{dial(t, n), dial(t, n)}
		var ids [2]int64
		for i, c := range pair {
			id, err := redis.Int64(c.Do("CLIENT", "ID"))
			require.NoError(t, err)
			ids[i] = id
		}
		var wg sync.WaitGroup
		for i, c := range pair {
			wg.Add(1)
			go func() {
				defer wg.Done()
				_, _ = c.Do("CLIENT", "KILL", "ID", ids[1-i]) // either may win
			}()
		}
		wg.Wait()
	}
	assert.Equal(t, "PONG", do(t, n, "PING"))
}

// A script runs with the server locked. A kill in a script could wait forever for a victim that waits for that lock.
func TestAKillThatIsRefusedKillsNobody(t *testing.T) {
	_, connect := simulated(t)
	killer, victim := connect(), connect()
	id, err := redis.Int64(victim.Do("CLIENT", "ID"))
	require.NoError(t, err)
	stop := make(chan struct{})
	done := make(chan error, 1)
	go func() { // it always executes a command
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
				if _, err := victim.Do("INCR", "count"); err != nil {
					done <- err
					return
				}
			}
		}
	}()
	var refusal redis.Error
	for range 200 {
		_, err = killer.Do("EVAL", "return redis.call('CLIENT', 'KILL', 'ID', ARGV[1])", 0, id)
		require.ErrorAs(t, err, &refusal)
		_, err = killer.Do("EVAL", "return redis.pcall('CLIENT', 'ID')", 0)
		require.ErrorAs(t, err, &refusal)
	}
	_, err = killer.Do("MULTI")
	require.NoError(t, err)
	queued, err := killer.Do("CLIENT", "KILL", "ID", id)
	require.NoError(t, err)
	assert.Equal(t, "QUEUED", queued)
	replies, err := redis.Values(killer.Do("EXEC"))
	require.NoError(t, err)
	require.Len(t, replies, 1)
	assert.IsType(t, refusal, replies[0], "Redis would kill now; the embedded server says that it does not")
	close(stop)
	require.NoError(t, <-done, "the victim was not killed")
	next, err := redis.Int64(connect().Do("CLIENT", "ID"))
	require.NoError(t, err)
	assert.EqualValues(t, 3, next, "scripts use up no ids")
}

func TestTheAnswersWorkInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		defer m.Close()
		s := embeddedredis.AnswerServerCommands(m, embeddedredis.Identity{})
		assert.Len(t, s.Identity().RunID, 40)
		plain, err := m.Dial() // a connection that is not from Serve gets answers too
		require.NoError(t, err)
		ours, err := s.Dial()
		require.NoError(t, err)
		victim, killer := redis.NewConn(plain, 0, 0), redis.NewConn(ours, 0, 0)
		defer victim.Close()
		defer killer.Close()

		_, err = killer.Do("SET", "k", "v", "PX", 100)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		gone, err := killer.Do("GET", "k")
		require.NoError(t, err)
		assert.Nil(t, gone)
		info, err := redis.String(victim.Do("INFO"))
		require.NoError(t, err)
		assert.Contains(t, info, "uptime_in_seconds:60\r\n")

		id, err := redis.Int64(victim.Do("CLIENT", "ID"))
		require.NoError(t, err)
		killed, err := redis.Int(killer.Do("CLIENT", "KILL", "ID", id))
		require.NoError(t, err)
		assert.Equal(t, 1, killed)
		_, err = victim.Do("SET", "k", "v")
		assert.Error(t, err)
		gone, err = killer.Do("GET", "k")
		require.NoError(t, err)
		assert.Nil(t, gone)
	})
}
