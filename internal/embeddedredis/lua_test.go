//go:build unix

package embeddedredis_test

import (
	"crypto/sha1" // #nosec: Redis names scripts by it
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/assert"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// Each line is sent to an embedded server and to Redis, on one connection each. The answers must be equal.
func TestScriptsAreAnsweredAsRedisAnswersThem(t *testing.T) {
	const counts = "return redis.call('INCR', KEYS[1])"
	const sha = "2bab3b661081db58bd2341920e0ba7cf5dc77b25" // of no script
	told := [][]any{
		{"EVAL", "return {KEYS[1], KEYS[2], ARGV[1], #ARGV}", 2, "a", "b", "c", "d"},
		{"EVAL", "return {1, 2.7, 'x', false, true, {3, {4}}}", 0},
		{"EVAL", "return {1, nil, 3}", 0},
		{"EVAL", "return {1764170000000000, -1764170000000000}", 0}, // more than 32 bits
		{"EVAL", "redis.call('SET', 'e', 1) local ends = redis.call('TIME')[1] * 1000 + 600000 " +
			"return {redis.call('PEXPIREAT', 'e', string.format('%.0f', ends)), math.ceil(redis.call('PTTL', 'e') / 600000)}", 0},
		{"EVAL", "return redis.call('PEXPIREAT', 'e', 'soon')", 0},
		{"EVAL", "redis.call('SET', 'e', 1) redis.call('PEXPIREAT', 'e', 1) return redis.call('EXISTS', 'e')", 0},
		{"EVAL", "return nil", 0},
		{"EVAL", "return false", 0},
		{"EVAL", "local x = 1", 0},
		{"EVAL", "return redis.status_reply('FINE')", 0},
		{"EVAL", "return redis.error_reply('MY error')", 0},
		{"EVAL", "return redis.call('SET', 'k', 'v')", 0},
		{"EVAL", "return redis.call('SET', 'k', 'v', 'NX')", 0},
		{"EVAL", "return redis.call('SET', 'k', 'v', 'NX') == false", 0},
		{"EVAL", "return redis.call('SET', 'n', 10).ok", 0},
		{"EVAL", "return redis.call('GET', 'none') == false", 0},
		{"EVAL", "return redis.call('MGET', 'k', 'none', 'n')", 0},
		{"EVAL", "redis.call('HSET', 'h', 'f', 'v') return redis.pcall('GET', 'h').err", 0},
		{"EVAL", "return type(redis.pcall('GET', 'h'))", 0},
		{"EVAL", "return redis.pcall('GET', 'h')", 0},
		{"EVAL", "redis.call('INCR', 'n') redis.call('GET', 'h') redis.call('INCR', 'n')", 0}, // the first INCR stays
		{"GET", "n"},
		{"EVAL", "leak = 1", 0},
		{"EVAL", "return leak", 0},
		{"EVAL", "return KEYS[1]", 1, "still"},
		{"EVAL", "return string.match('run 12', '(%d+)') .. math.max(1, 2) .. string.format('%.0f', 1e15)", 0},
		{"EVAL", "local t = {3, 1, 2} table.sort(t) return t", 0},
		{"EVAL", "return redis.call('NOSUCH')", 0},
		{"EVAL", "return redis.call('EVAL', 'return 1', 0)", 0},
		{"EVAL", "return", "x"},
		{"EVAL", "return 1", 2, "a"},
		{"EVAL", "return 1", -1},
		{"EVAL", "not lua", 0},
		{"SCRIPT", "LOAD", "not lua"},
		{"SCRIPT", "LOAD", counts},
		{"SCRIPT", "LOAD"},
		{"SCRIPT", "EXISTS", sha},
		{"EVALSHA", sha, 0},
		{"MULTI"}, {"EVAL", counts, 1, "count"}, {"EVAL", counts, 1, "count"}, {"GET", "count"}, {"EXEC"},
		{"MULTI"}, {"SCRIPT", "LOAD", "return 7"}, {"EXEC"},
		{"SELECT", 3}, {"EVAL", counts, 1, "count"}, {"GET", "count"}, {"SELECT", 0}, {"GET", "count"},
		{"SCRIPT", "FLUSH"},
	}
	embedded := dial(t, fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1}).Nodes()[0])
	real := dial(t, fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1}).Nodes()[0])
	answer := func(c redis.Conn, line []any) string {
		reply, err := c.Do(line[0].(string), line[1:]...)
		if err != nil { // miniredis words errors of a script differently
			return fmt.Sprint("error, of no script: ", strings.HasPrefix(err.Error(), "NOSCRIPT"))
		}
		return fmt.Sprintf("%q", reply)
	}
	both := func(line []any) {
		assert.Equal(t, answer(real, line), answer(embedded, line), fmt.Sprint(line...))
	}
	for _, line := range told {
		both(line)
	}
	sum := sha1.Sum([]byte(counts))
	loaded := hex.EncodeToString(sum[:])
	both([]any{"EVALSHA", loaded, 1, "count"})
	for _, line := range [][]any{
		{"SCRIPT", "LOAD", counts}, {"EVALSHA", loaded, 1, "count"}, {"GET", "count"}, {"SCRIPT", "EXISTS", loaded, sha},
		{"EVALSHA", loaded, 1, "count"}, {"MULTI"}, {"EVALSHA", loaded, 1, "count"}, {"INCR", "count"}, {"EXEC"},
		{"MULTI"}, {"SCRIPT", "FLUSH"}, {"EXEC"}, {"EVALSHA", loaded, 1, "count"}, {"SCRIPT", "EXISTS", loaded},
		{"EVAL", counts, 1, "count"}, {"EVALSHA", loaded, 1, "count"},
	} {
		both(line)
	}
}

// While a script runs, commands of other connections wait.
func TestAScriptIsOneStep(t *testing.T) {
	n := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1}).Nodes()[0]
	const twice = "local a = redis.call('INCR', 'a') local b = redis.call('INCR', 'b') return a - b"
	var wg sync.WaitGroup
	for range 8 {
		conn := dial(t, n)
		wg.Go(func() {
			for range 200 {
				apart, err := redis.Int(conn.Do("EVAL", twice, 0))
				assert.NoError(t, err)
				assert.Zero(t, apart)
			}
		})
	}
	wg.Wait()
	assert.Equal(t, "1600", fmt.Sprintf("%s", do(t, n, "GET", "a")))
}
