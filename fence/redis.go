package fence

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/gomodule/redigo/redis"
)

// checkLua is the beginning of each script. The documentation of Script has its keys and arguments. Tokens are compared
// as numbers, which is exact below 2^53. They are stored and returned as text, because Lua prints only 14 digits of a
// number. If the stored text is no token, the comparison fails, and so does the script.
const checkLua = `do
  local function number(text) return tonumber(string.match(text, '^[1-9]%d*$') or '') end
  local token, highest = number(ARGV[1]), redis.call('GET', KEYS[1])
  if not token or token >= 9007199254740992 then
    return redis.error_reply('ERR not a fencing token: ' .. ARGV[1])
  end
  if highest and token < number(highest) then return redis.error_reply('FENCED ' .. highest) end
  redis.call('SET', KEYS[1], ARGV[1])
end
`

// Script returns the source of a Lua script that runs commands in Redis, unless a fencing token is stale. Redis runs a
// script as one atomic step. Use it with any client:
//
//	KEYS[1]  where the largest token is stored; see [TokenKey]
//	ARGV[1]  the token
//
// The commands are Lua. They use KEYS[2] and ARGV[2] and so on, and return the script's reply. All keys that they touch
// must be in KEYS, as Redis demands. The first of these is what [Set] runs. The second deletes a value. Its token stays,
// so that an old holder cannot write the value again.
//
//	fence.Script("return redis.call('SET', KEYS[2], ARGV[2])")
//	fence.Script("return redis.call('DEL', KEYS[2])")
//
// If the token is stale, the commands do not run, and the reply is an error, "FENCED" and the largest token. Clients
// return it as an error, and [RedisError] translates it. If something is stored at KEYS[1] that is not a token, the
// reply is an error too. A script needs Redis 2.6 or later.
//
// The protected Redis is an ordinary one, with persistence, and maxmemory-policy noeviction. The servers that grant the
// lock are not fit for it. They may lose their data at any time, which a quarantine makes up for. A value and its token
// would be lost with one of them, and then any token is accepted. In the same way, a replica that is promoted has
// forgotten the writes that had not reached it, and their tokens.
func Script(commands string) string { return checkLua + commands }

var (
	setScript   = redis.NewScript(2, Script("return redis.call('SET', KEYS[2], ARGV[2])"))
	checkScript = redis.NewScript(1, Script("return 'OK'"))
)

// TokenKey returns the key where [Set] and [Check] store the largest token for this key. It is in the same slot of a
// Redis Cluster, unless the key has braces that are not a hash tag. It takes some 100 bytes in Redis, and does not
// expire: a holder may be paused for any time.
//
// Let nothing else write there. If others choose your keys, give these a prefix that has no brace and is not "fence:", and
// let no brace into the rest: the token key of "{a}" is "{a}:fence", which somebody could take for a key of values. Set and
// Check refuse it with [ErrInvalid].
func TokenKey(key string) string {
	_, behind, _ := strings.Cut(key, "{")
	if strings.IndexByte(behind, '}') > 0 { // the key has a hash tag: keep it the first one
		return key + ":fence"
	}
	return "fence:{" + key + "}"
}

// checkKey refuses a key where the token of another key is stored: a value there would lower that token.
func checkKey(key string) error {
	tagged := strings.TrimSuffix(key, ":fence")
	plain := strings.TrimPrefix(strings.TrimSuffix(key, "}"), "fence:{")
	for _, other := range []string{tagged, plain} {
		if TokenKey(other) == key {
			return fmt.Errorf("%w: at the key %q is the token of the key %q", ErrInvalid, key, other)
		}
	}
	return nil
}

// Set stores a value in Redis, and the token at [TokenKey], in one atomic step. If the token is smaller than the one
// that is stored there, nothing is written, and the error is a [*StaleError]. A token that is 0, or not below 2^53, is
// [ErrInvalid], and so is a key where the token of another key is stored. Other errors are those of the connection and of
// Redis. After an error of the connection, or when ctx has ended, the value may have been written, or the network may still
// have it. It is safe to call Set again with the same token and value. Before you write another value, get a larger token
// and call [Check]: with the same one, the old value could arrive later and undo the new one.
//
// The value does not expire. For another command, or options of SET, use [Script].
//
// ctx bounds the call. If it ends first, redigo closes the connection. conn must support contexts, as those of redigo
// do, and must not be in a transaction (MULTI): there, nothing is compared before EXEC.
func Set[V ~string | ~[]byte](ctx context.Context, conn redis.Conn, key string, value V, token uint64) error {
	if err := errors.Join(checkToken(token), checkKey(key)); err != nil {
		return err
	}
	return run(ctx, conn, setScript, key, token, TokenKey(key), key, token, []byte(value))
}

// Check stores only the token of a key in Redis, as [Set] does. Call it before you read a value that you will change:
// afterwards, no holder with a smaller token can write it.
func Check(ctx context.Context, conn redis.Conn, key string, token uint64) error {
	if err := errors.Join(checkToken(token), checkKey(key)); err != nil {
		return err
	}
	return run(ctx, conn, checkScript, key, token, TokenKey(key), token)
}

// run runs one of the two scripts. Both reply OK. Another reply is QUEUED, in a transaction: nothing has been compared.
func run(ctx context.Context, conn redis.Conn, script *redis.Script, key string, token uint64, args ...any) error {
	reply, err := redis.String(script.DoContext(ctx, conn, args...))
	if err == nil && reply != "OK" {
		return fmt.Errorf("fence: Redis replied %q for %q, not OK: is the connection in a transaction (MULTI)?", reply, key)
	}
	return RedisError(err, key, token)
}

// RedisError returns a [*StaleError] for this resource and token if err is the FENCED reply of a [Script]. Otherwise it
// returns err. It works with the errors of any client, also wrapped and joined ones.
func RedisError(err error, resource string, token uint64) error {
	if highest, fenced := highestIn(err); fenced {
		return &StaleError{Resource: resource, Token: token, Highest: highest}
	}
	return err
}

// highestIn returns the token in the FENCED reply, if err is one or wraps one.
func highestIn(err error) (highest uint64, fenced bool) {
	if err == nil {
		return 0, false
	}
	if text, found := strings.CutPrefix(err.Error(), "FENCED "); found {
		if highest, err := strconv.ParseUint(text, 10, 64); err == nil {
			return highest, true
		}
	}
	switch err := err.(type) {
	case interface{ Unwrap() error }:
		return highestIn(err.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range err.Unwrap() {
			if highest, fenced = highestIn(one); fenced {
				return highest, true
			}
		}
	}
	return 0, false
}
