package redlock_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/redlocktest"
)

func TestATrialFindsWhatANodesUserMayNotDo(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c, ctx := open(t, f, patient), soon(t)
	problems, err := c.Trial(ctx)
	require.NoError(t, err)
	require.Equal(t, make([]error, 5), problems)
	for i, right := range []string{"-set", "-zadd", "-pexpire", "-del"} {
		tell(t, f.Nodes()[i], "ACL", "SETUSER", "default", right)
	}
	problems, err = c.Trial(ctx)
	require.NoError(t, err)
	for i, problem := range problems[:4] {
		require.Error(t, problem, "%d", i)
		require.Regexp(t, "its user lacks the right|NOPERM", problem.Error(), "%d", i)
	}
	require.NoError(t, problems[4])
	require.NoError(t, f.Nodes()[4].Kill())
	problems, err = c.Trial(ctx)
	require.NoError(t, err)
	require.Error(t, problems[4])
	require.NoError(t, c.Close())     // Close sends the releases that it owed
	for i, n := range f.Nodes()[:3] { // without DEL, the trial's queue stays
		require.Empty(t, tell(t, n, "KEYS", "*doctor/*"), "%d", i)
	}
	_, err = c.Trial(ctx)
	require.ErrorIs(t, err, redlock.ErrClosed)
}

// A node that is not enrolled refuses before it comes to the commands of a lock. Its user's rights are tried all the same,
// because enroll asks for them first.
func TestATrialFindsMissingRightsBeforeNodesAreEnrolled(t *testing.T) {
	mutex := slices.Sorted(maps.Keys(rightsIn(t, "acquire", "extend", "release")))
	// Without these, a mutex works, or enroll fails.
	mutex = slices.DeleteFunc(mutex, func(right string) bool {
		return slices.Contains([]string{"+get", "+time", "+pttl", "+zscore", "+zrange", "+zrem", "+zpopmin"}, right)
	})
	require.Equal(t, []string{"+del", "+pexpire", "+set", "+zadd"}, mutex)
	f := fleettest.Start(t, fleet.Process, fleet.Options{})
	c := openFresh(t, f, patient)
	for i, right := range mutex {
		tell(t, f.Nodes()[i], "ACL", "SETUSER", "default", strings.Replace(right, "+", "-", 1))
	}
	problems, err := c.Trial(soon(t))
	require.NoError(t, err)
	for i, right := range mutex {
		require.Error(t, problems[i], right)
		require.Regexp(t, `lacks the right \`+right+"|NOPERM.*'"+right[1:]+"'", problems[i].Error())
		require.Empty(t, tell(t, f.Nodes()[i], "KEYS", "*doctor/*"), right)
	}
	require.ErrorContains(t, problems[4], "it is new")
}

func TestATrialLeavesNothingBehind(t *testing.T) {
	onFleets(t, fleet.Options{}, func(t *testing.T, f *fleet.Fleet) {
		c := open(t, f, patient)
		problems, err := c.Trial(soon(t))
		require.NoError(t, err)
		require.Equal(t, make([]error, 5), problems)
		for _, n := range f.Nodes() {
			require.Empty(t, tell(t, n, "KEYS", "*doctor/*"))
		}
	})
}

// Its queue is the one key that is left where a user may add to it and not remove it. It expires.
func TestATrialLeavesNothingForEver(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c, n := openFresh(t, f, patient), f.Nodes()[0] // on a node that votes, the scripts see to that
	for _, right := range []string{"-del", "-zrem", "-zpopmin"} {
		tell(t, n, "ACL", "SETUSER", "default", right)
	}
	problems, err := c.Trial(soon(t))
	require.NoError(t, err)
	require.Error(t, problems[0])
	require.NoError(t, c.Close()) // it sends what it owes
	left := tell(t, n, "KEYS", "*doctor/*").([]any)
	require.Len(t, left, 1)
	require.Positive(t, tell(t, n, "PTTL", left[0]))
}

// What a script may ask of a server stands in the script. The trial tries whatever fair locks, readers and permits need
// beyond a mutex, and operations.md says so.
func TestATrialTriesTheRightsOfEveryKind(t *testing.T) {
	mutex := rightsIn(t, "common", "acquire", "vouch", "extend", "plant", "release", "leave", "swap", "adopt", "inspect")
	beyond := func(scripts ...string) []string {
		rights := rightsIn(t, scripts...)
		maps.DeleteFunc(rights, func(right string, _ bool) bool { return mutex[right] })
		return slices.Sorted(maps.Keys(rights))
	}
	fair, shared := beyond("fair"), beyond("share", "unshare", "entries")
	all, err := filepath.Glob("scripts/*.lua")
	require.NoError(t, err)
	require.Len(t, all, 10+1+3+1, "a new script needs its place in one of these lists; ready is for Enroll too")

	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f)
	lacks := func(node int, rights []string) {
		for _, right := range rights {
			tell(t, f.Nodes()[node], "ACL", "SETUSER", "default", strings.Replace(right, "+", "-", 1))
		}
	}
	lacks(0, fair)
	lacks(1, shared)
	lacks(2, append(fair, shared...))
	problems, err := c.Trial(soon(t))
	require.NoError(t, err)
	for i, want := range []struct{ kinds, rights []string }{
		{[]string{"fair locks"}, fair},
		{[]string{"readers and permits"}, shared},
		{[]string{"fair locks", "readers and permits"}, slices.Sorted(slices.Values(append(fair, shared...)))},
	} {
		var kinds *redlock.KindsError
		require.ErrorAs(t, problems[i], &kinds)
		require.Equal(t, want.kinds, kinds.Kinds)
		require.ElementsMatch(t, want.rights, kinds.Rights, "%v", kinds)
		require.ErrorContains(t, kinds, "permissions to run")
	}
	require.NoError(t, c.Mutex("x").Do(soon(t), func(context.Context, *redlock.Lease) error { return nil }))

	for path, names := range map[string][2]string{"docs/operations.md": {"`", "`"}, "deploy/redis/users.acl": {"+", ""}} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, right := range append(fair, shared...) {
			require.Contains(t, string(text), names[0]+right[1:]+names[1], path)
		}
	}
}

// A trial says of each kind of lock what happens to it on servers without a right.
func TestATrialAgreesWithWhatHappensWithoutARight(t *testing.T) {
	type try struct {
		kind string // as a trial calls it; "": a mutex
		lock func(*redlock.Client) redlock.Lock
	}
	tries := []try{
		{"", func(c *redlock.Client) redlock.Lock { return c.Mutex("m") }},
		{"", func(c *redlock.Client) redlock.Lock { return c.Mutex("m", "n") }},
		{"", func(c *redlock.Client) redlock.Lock { return c.Mutex("h").WithMinHold(100 * time.Millisecond) }},
		{"fair locks", func(c *redlock.Client) redlock.Lock { return c.Mutex("f").Fair() }},
		{"readers and permits", func(c *redlock.Client) redlock.Lock { return c.RWMutex("r").Reader() }},
		{"readers and permits", func(c *redlock.Client) redlock.Lock { return c.Semaphore("s", 1) }},
	}
	passOn := func(a, b *redlock.Client, lock func(*redlock.Client) redlock.Lock, patience time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		held, err := lock(a).Acquire(ctx)
		if err != nil {
			return err
		}
		next := make(chan error, 1)
		go func() {
			lease, err := lock(b).Acquire(ctx)
			if err == nil {
				err = lease.Release(ctx)
			}
			next <- err
		}()
		time.Sleep(50 * time.Millisecond) // it waits by now, or shares
		err = cmp.Or(held.Extend(ctx), held.Release(ctx))
		return cmp.Or(err, <-next)
	}
	for right, want := range map[string][]string{ // the kinds that fail
		"zrem":        {"fair locks", "readers and permits"},
		"zrange":      {"fair locks", "readers and permits"},
		"zpopmin":     {},
		"zrank":       {"fair locks"},
		"pexpireat":   {"readers and permits"},
		"del":         nil, // all
		"unsubscribe": {},
	} {
		t.Run(right, func(t *testing.T) {
			f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
			a, b := open(t, f, patient), open(t, f, patient)
			for _, n := range f.Nodes() {
				tell(t, n, "ACL", "SETUSER", "default", "-"+right)
			}
			problems, err := a.Trial(soon(t))
			require.NoError(t, err)
			var kinds *redlock.KindsError
			switch {
			case right == "unsubscribe": // nothing sends it
				require.NoError(t, problems[0])
			case want == nil:
				require.Error(t, problems[0])
				require.NotErrorAs(t, problems[0], &kinds)
			default:
				require.ErrorAs(t, problems[0], &kinds)
				require.ElementsMatch(t, want, kinds.Kinds)
				require.Equal(t, []string{"+" + right}, kinds.Rights)
			}
			for _, try := range tries {
				fails, patience := want == nil || slices.Contains(want, try.kind), 10*time.Second
				if fails {
					patience = time.Second // all of it, where a waiter waits in vain
				}
				err := passOn(a, b, try.lock, patience)
				switch {
				case !fails:
					require.NoError(t, err, "%q", try.kind)
				case try.kind == "readers and permits": // what else fails may do so only after a waiter gave up
					require.Error(t, err, "%q", try.kind)
				}
			}
		})
	}
}

// Nobody has waited, and a trial knows all the same that nobody would be told.
func TestATrialFindsThatANodeSendsNoMessages(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	c := open(t, f, patient)
	deaf := f.Nodes()[2]
	tell(t, deaf, "ACL", "SETUSER", "default", "-subscribe")
	warnings := func() (all [3]string) {
		problems, err := c.Trial(soon(t))
		require.NoError(t, err)
		require.Equal(t, make([]error, 3), problems)
		for i, s := range c.Status(soon(t)) {
			require.NoError(t, s.Err)
			all[i] = strings.Join(s.Warnings, "\n")
		}
		return all
	}
	said := warnings()
	require.Empty(t, said[0]+said[1])
	require.Contains(t, said[2], "its waiters poll: NOPERM")
	require.Contains(t, said[2], "+subscribe")
	tell(t, deaf, "ACL", "SETUSER", "default", "+subscribe")
	require.Empty(t, warnings())
}

// rightsIn is the commands of these scripts, as ACL SETUSER takes them.
func rightsIn(t *testing.T, scripts ...string) map[string]bool {
	rights := map[string]bool{}
	for _, name := range scripts {
		source, err := os.ReadFile("scripts/" + name + ".lua")
		require.NoError(t, err)
		for line := range strings.Lines(string(source)) {
			code, _, _ := strings.Cut(line, "--")
			for _, command := range regexp.MustCompile(`redis\.p?call\('([A-Z]+)'`).FindAllStringSubmatch(code, -1) {
				rights["+"+strings.ToLower(command[1])] = true
			}
		}
	}
	return rights
}

// A connection that breaks in the middle of a trial is not taken for a lack of rights.
func TestATrialTellsAnOutageFromALackOfRights(t *testing.T) {
	require.NotErrorAs(t, redlock.TrialFailure("ZRANK", io.ErrUnexpectedEOF), new(*redlock.KindsError))
	require.ErrorAs(t, redlock.TrialFailure("ZRANK", redis.Error("NOPERM no")), new(*redlock.KindsError))
}

// A busy machine is slow. That is no lack of rights.
func TestATrialAsksWhatANodeAnswersAndNotHowFast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := redlocktest.Start(t, 3)
		client, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: 50 * time.Millisecond})
		require.NoError(t, err)
		defer client.Close()
		require.NoError(t, client.Enroll(t.Context()))
		for i := range 3 {
			nodes.Delay(i, 200*time.Millisecond)
		}
		problems, err := client.Trial(t.Context())
		require.NoError(t, err)
		require.Equal(t, make([]error, 3), problems)
		nodes.Pause(1)
		problems, err = client.Trial(t.Context())
		require.NoError(t, err)
		require.NoError(t, problems[0])
		require.Error(t, problems[1], "it does not answer at all")
	})
}

// L2: Close does not wait for a Trial that a silent server holds up, and nothing of it is left.
func TestCloseEndsATrial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, all := enrolled(t, 1)
		w.servers[0].links[0].hold(replies, +1)
		tried := make(chan error)
		go func() {
			_, err := all[0].Trial(t.Context())
			tried <- err
		}()
		time.Sleep(10 * time.Millisecond)
		began := time.Now()
		require.NoError(t, all[0].Close())
		require.LessOrEqual(t, time.Since(began), 2*nodeTimeout)
		require.ErrorIs(t, <-tried, redlock.ErrClosed)
		for _, s := range w.servers[1:] {
			require.Empty(t, slices.DeleteFunc(s.redis.Keys(), func(key string) bool { return !strings.HasPrefix(key, "doctor/") }))
		}
	})
}

// The lock of a trial outlasts its waits for a node that is silent, also if locks have a short TTL. Otherwise it would expire
// in the middle, and nodes on which nothing is wrong would seem to grant it twice, or to lose it.
func TestATrialBlamesNoNodeForAnotherThatIsSilent(t *testing.T) {
	for _, ttl := range []time.Duration{100 * time.Millisecond, time.Second, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			w := virtual(t, 3, 1)
			c := w.connect(t, 0, func(cfg *redlock.Config) { cfg.TTL, cfg.MaxTTL = ttl, ttl })
			require.NoError(t, c.Enroll(t.Context()))
			c.Status(t.Context())
			w.servers[0].links[0].hold(replies, +1)
			defer w.servers[0].links[0].hold(replies, -1)
			problems, err := c.Trial(t.Context())
			require.NoError(t, err)
			require.Error(t, problems[0])
			require.NoError(t, errors.Join(problems[1:]...), "TTL %v", ttl)
			synctest.Wait()
			for _, s := range w.servers[1:] {
				require.NotContains(t, strings.Join(s.redis.Keys(), " "), "doctor/")
			}
		})
	}
}
