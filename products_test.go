package redlock

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// What versions and other products said, recorded from servers that `make compat` runs.

func TestINFOOfOtherProductsIsUnderstood(t *testing.T) {
	for name, c := range map[string]struct {
		info, shown string
		gt          bool
	}{
		"Redis 6.0":  {"redis_version:6.0.16\r\nredis_mode:MODE\r\n", "6.0.16", false},
		"Redis 8.6":  {"redis_version:8.6.3\r\nredis_mode:MODE\r\n", "8.6.3", true},
		"Redict 7.3": {"redict_version:7.3.6\r\nredict_mode:MODE\r\nredis_version:7.2.4\r\n", "redict-7.3.6", true},
		"Valkey 9.1": {"redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:9.1.2\r\nserver_mode:MODE\r\navailability_zone:\r\n",
			"valkey-9.1.2", true},
	} {
		for mode, unfit := range map[string]string{"standalone": "", "cluster": "cluster mode", "sentinel": "it is a Sentinel"} {
			info := readInfo("# Replication\r\nrole:master\r\n# Server\r\n" + strings.ReplaceAll(c.info, "MODE", mode) + "run_id:abc\r\n")
			require.Equal(t, "abc", info.runID, name)
			require.Equal(t, c.gt, info.knowsGT(), name)
			require.Empty(t, info.warnings(), name)
			if unfit == "" {
				require.NoError(t, info.unfit(false), name)
			} else {
				require.ErrorContains(t, info.unfit(false), unfit, name)
			}
			require.Equal(t, c.shown, info.shownVersion(), name)
		}
	}
}

func TestACommandThatAServerLacksIsToldFromOtherRefusals(t *testing.T) {
	for text, forbidden := range map[string]bool{
		"NOPERM this user has no permissions to run the 'client' command or its subcommand": true, // Redis 6
		"NOPERM User meek has no permissions to run the 'client|kill' command":              true, // Redis 7
		"ERR unknown command `CLIENT`, with args beginning with: `KILL`":                    true,
		"ERR Unknown subcommand or wrong number of arguments for 'KILL'. Try CLIENT HELP.":  true, // Redis 6
		"ERR unknown subcommand 'KILL'. Try CLIENT HELP.":                                   true, // Redis 7
		"ERR syntax error":                               false, // Dragonfly, of a number above 32 bits
		"ERR client-id should be greater than 0":         false,
		"ERR No such client":                             false,
		"NOAUTH Authentication required.":                false,
		"LOADING Redis is loading the dataset in memory": false,
	} {
		require.Equal(t, forbidden, isForbidden(redis.Error(text)), text)
	}
	require.False(t, isForbidden(nil))
}

func TestTheCodeOfAnErrorIsFoundInsideAScript(t *testing.T) {
	const sha = "80d15f6c748349e0ed5484b470364f85ca8e2b37"
	const in6 = "ERR Error running script (call to f_" + sha + "): @user_script:71: " // 6.0 and 6.2
	for text, code := range map[string]string{
		in6 + "WRONGTYPE Operation against a key holding the wrong kind of value ":                                   "WRONGTYPE",
		in6 + "@user_script: 71: -READONLY You can't write against a read only replica.  ":                           "READONLY",
		"@user_script: 71: -READONLY You can't write against a read only replica.  ":                                 "READONLY", // of one lease in extend.lua
		"WRONGTYPE Operation against a key holding the wrong kind of value":                                          "WRONGTYPE",
		"READONLY You can't write against a read only replica.":                                                      "READONLY",
		"WRONGTYPE Operation against a key holding the wrong kind of value script: " + sha + ", on @user_script:71.": "WRONGTYPE", // 7.0, 7.2
		"READONLY You can't write against a read only replica. script: " + sha + ", on @user_script:71.":             "READONLY",
		"WRONGTYPE Operation against a key holding the wrong kind of value script: on @user_script:71.":              "WRONGTYPE", // Valkey
		in6 + "@user_script: 71: The user executing the script can't run this command or subcommand":                 "",
		in6 + "@user_script:71: attempt to index a nil value, not READONLY, not WRONGTYPE":                           "",
		"ERR Error running script (call to f_" + sha:                                                                 "",
		"OOM command not allowed when used memory > 'maxmemory'. script: WRONGTYPE READONLY, on @user_script:71.":    "",
		"@user_script:": "",
	} {
		for _, c := range []string{wrongType, "READONLY"} {
			require.Equal(t, c == code, hasCode(redis.Error(text), c), "%s: %s", c, text)
		}
	}
}

func TestTheRightThatAScriptLacksIsNamed(t *testing.T) {
	p := standard
	var at script // a line that calls one command
	line := 0
	for _, s := range p.scripts() {
		for i, text := range strings.Split(s.source, "\n") {
			if found := commandInLine().FindAllString(text, -1); len(found) == 1 && strings.Contains(text, "'PEXPIRE'") {
				at, line = *s, i+1
			}
		}
	}
	require.NotZero(t, line)
	for name, refusal := range map[string]string{
		"Redis 6.0": fmt.Sprintf("ERR Error running script (call to f_%s): @user_script:%d: @user_script: %d: The user executing the script "+
			"can't run this command or subcommand", at.sha, line, line),
		"Redis 7.0": fmt.Sprintf("ERR The user executing the script can't run this command or subcommand script: %s, on @user_script:%d.", at.sha, line),
		"Redis 8.6": fmt.Sprintf("ERR ACL failure in script: User default has no permissions to run the 'pexpire' command script: %s, on @user_script:%d.",
			at.sha, line),
		"Valkey 9.1": fmt.Sprintf("ERR ACL failure in script: User default has no permissions to run the 'pexpire' command script: on @user_script:%d.", line),
	} {
		require.ErrorContains(t, p.withRight(errors.New(refusal)), "its user lacks the right +pexpire: ERR ", name)
	}
	for _, other := range []string{"ERR ACL failure in script: No permissions to access a key script: on @user_script:1.", "OOM"} {
		require.EqualError(t, p.withRight(errors.New(other)), other)
	}
}
