package redlock_test

import (
	"context"
	"crypto/tls"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

func TestInvalidConfigurationNamesTheField(t *testing.T) {
	three := redlock.Nodes("a", "b", "c")
	dial := func(context.Context) (redis.Conn, error) { return nil, nil }
	credentials := func(context.Context) (string, string, error) { return "", "", nil }
	for name, c := range map[string]struct {
		field string
		cfg   redlock.Config
	}{
		"no nodes":                    {"Nodes", redlock.Config{}},
		"too many nodes":              {"Nodes", redlock.Config{Nodes: make([]redlock.Node, 65)}},
		"the same address":            {"Nodes[1]", redlock.Config{Nodes: redlock.Nodes("a:1", "redis://A:1")}},
		"the default port":            {"Nodes[1]", redlock.Config{Nodes: redlock.Nodes("a", "redis://a:6379/3")}},
		"the same name":               {"Nodes[1].Name", redlock.Config{Nodes: []redlock.Node{{Name: "x", URL: "a"}, {Name: "x", URL: "b"}}}},
		"no URL":                      {"Nodes[0].URL", redlock.Config{Nodes: []redlock.Node{{}}}},
		"an unknown scheme":           {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("http://a")}},
		"no host":                     {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://")}},
		"a port that is none":         {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a:99999")}},
		"no database":                 {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a/x")}},
		"a socket with a host":        {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("unix://run/redis.sock")}},
		"a parameter that is unknown": {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a?database=3")}},
		"two databases":               {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a/2?db=3")}},
		"the database twice":          {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a?db=3&db=3")}},
		"an empty database":           {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("rediss://a?db=")}},
		"a negative database":         {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a?db=-1")}},
		"a socket's other parameter":  {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("unix:///s?timeout=1")}},
		"a parameter that is garbled": {"Nodes[0].URL", redlock.Config{Nodes: redlock.Nodes("redis://a?db=%zz")}},
		"TLS without rediss":          {"Nodes[0].TLS", redlock.Config{Nodes: []redlock.Node{{URL: "redis://a", TLS: &tls.Config{}}}}},
		"TLS and a socket":            {"Nodes[0].TLS", redlock.Config{Nodes: []redlock.Node{{URL: "unix:///s", TLS: &tls.Config{}}}}},
		"TLS and Dial":                {"Nodes[0].TLS", redlock.Config{Nodes: []redlock.Node{{Name: "x", Dial: dial, TLS: &tls.Config{}}}}},
		"URL and Dial":                {"Nodes[0]", redlock.Config{Nodes: []redlock.Node{{URL: "a", Dial: dial}}}},
		"Credentials and Dial":        {"Nodes[0].Credentials", redlock.Config{Nodes: []redlock.Node{{Name: "x", Dial: dial, Credentials: credentials}}}},
		"Credentials beside the URL's": {"Nodes[1].Credentials", redlock.Config{Nodes: []redlock.Node{{URL: "a"},
			{URL: "redis://user@b", Credentials: credentials}}}},
		"Dial without a name":         {"Nodes[0].Name", redlock.Config{Nodes: []redlock.Node{{Dial: dial}}}},
		"a short TTL":                 {"TTL", redlock.Config{Nodes: three, TTL: 9 * time.Millisecond}},
		"a negative TTL":              {"TTL", redlock.Config{Nodes: three, TTL: -1}},
		"a TTL above MaxTTL":          {"TTL", redlock.Config{Nodes: three, TTL: 31 * time.Second}},
		"a short MaxTTL":              {"MaxTTL", redlock.Config{Nodes: three, MaxTTL: time.Millisecond}},
		"a MaxTTL that overflows":     {"MaxTTL", redlock.Config{Nodes: three, MaxTTL: math.MaxInt64}},
		"a skew that overflows":       {"MaxClockSkew", redlock.Config{Nodes: three, MaxClockSkew: math.MaxInt64}},
		"NodeTimeout of half the TTL": {"NodeTimeout", redlock.Config{Nodes: three, TTL: time.Second, NodeTimeout: 500 * time.Millisecond}},
		"a NodeTimeout without unit":  {"NodeTimeout", redlock.Config{Nodes: three, NodeTimeout: 250}},
		"a NodeTimeout of 999µs":      {"NodeTimeout", redlock.Config{Nodes: three, NodeTimeout: 999 * time.Microsecond}},
		"a MinValidity without unit":  {"MinValidity", redlock.Config{Nodes: three, MinValidity: 500}},
		"a ClockBand without unit":    {"ClockBand", redlock.Config{Nodes: three, ClockBand: 100}},
		"a MaxClockSkew without unit": {"MaxClockSkew", redlock.Config{Nodes: three, MaxClockSkew: 500}},
		"a negative NodeTimeout":      {"NodeTimeout", redlock.Config{Nodes: three, NodeTimeout: -1}},
		"a quorum below a majority":   {"Quorum", redlock.Config{Nodes: three, Quorum: 1}},
		"a negative quorum":           {"Quorum", redlock.Config{Nodes: three, Quorum: -1}},
		"a quorum above all":          {"Quorum", redlock.Config{Nodes: three, Quorum: 4}},
		"a negative drift":            {"Drift", redlock.Config{Nodes: three, Drift: -0.1}},
		"a drift of a half":           {"Drift", redlock.Config{Nodes: three, Drift: 0.5}},
		"no drift at all":             {"Drift", redlock.Config{Nodes: three, Drift: math.NaN()}},
		"a drift that eats the TTL":   {"TTL", redlock.Config{Nodes: three, TTL: 10 * time.Millisecond, Drift: 0.49, MinValidity: 3 * time.Millisecond}},
		"a large MinValidity":         {"TTL", redlock.Config{Nodes: three, MinValidity: 10 * time.Second}},
		"a negative MinValidity":      {"MinValidity", redlock.Config{Nodes: three, MinValidity: -1}},
		"a band that overflows":       {"ClockBand", redlock.Config{Nodes: three, ClockBand: math.MaxInt64}},
		"a negative MaxClockSkew":     {"MaxClockSkew", redlock.Config{Nodes: three, MaxClockSkew: -1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := redlock.New(c.cfg)
			require.ErrorIs(t, err, redlock.ErrInvalid)
			require.ErrorContains(t, err, "invalid: "+c.field+":")
		})
	}
}

func TestATimeWhoseUnitWasForgottenIsToldToHaveOne(t *testing.T) {
	_, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("a"), NodeTimeout: 250})
	require.ErrorContains(t, err, "250*time.Millisecond")
}

// Other clients read redis://host?db=3 as database 3, so it must not mean another one here.
func TestTheDatabaseMayBeAParameterOfTheURL(t *testing.T) {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 1})
	for number, suffix := range map[int]string{0: "?db=0", 3: "?db=3", 4: "/4", 5: "/5?db=5", 6: "/?db=6"} {
		c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(f.URLs()[0] + suffix)})
		require.NoError(t, err, suffix)
		require.NoError(t, c.Enroll(soon(t)))
		l, err := c.Mutex(suffix).TryAcquire(soon(t))
		require.NoError(t, err)
		conn, err := f.Nodes()[0].DialDirect(soon(t), 5*time.Second)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Do("SELECT", number)
		require.NoError(t, err)
		token, err := redis.String(conn.Do("GET", suffix))
		require.NoError(t, err, suffix)
		require.Equal(t, l.Token(), token)
		require.NoError(t, c.Close())
	}
}

func TestAnUnknownParameterIsNamedUnlessItMayBeASecret(t *testing.T) {
	_, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("redis://a?client_name=hunter2")})
	require.ErrorContains(t, err, `"client_name"`)
	require.NotContains(t, err.Error(), "hunter2")
	for _, url := range []string{"redis://u:1?hunter2@a", "redis://u:1?hunter2#x@a", "redis://a?hunter2%20=x", "redis://u:1?hunter2%zz@a"} {
		_, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(url)})
		require.ErrorIs(t, err, redlock.ErrInvalid)
		require.NotContains(t, err.Error(), "hunter2", url)
	}
}

// What a client would look for is a host that nobody meant.
func TestAURLWhoseHostIsAnotherIsRefused(t *testing.T) {
	for url, remedy := range map[string]string{
		"a:7001,b:7001":                      "it has a comma; give each URL as an argument of its own",
		"redis://a:7001,redis://b:7001":      "it has a comma; give each URL as an argument of its own",
		"redis://locker:#hunter2@10.0.0.1":   "percent-encode it in a user name, password or path: %23",
		"redis://#hunter2@10.0.0.1":          "%23",
		"redis://u:6379#hunter2@10.0.0.1":    "%23",
		"redis://10.0.0.1#":                  "%23",
		"10.0.0.1:6379#hunter2":              "%23",
		"unix:///run/a#hunter2":              "%23",
		"fe80::5":                            "write an IPv6 address in brackets: redis://[2001:db8::1]:6379",
		"fe80::hunter2":                      "in brackets",
		"redis://2001:db8::1:6379/3":         "in brackets",
		"rediss://u:hunter2@2001:db8::1":     "in brackets",
		"redis://u:hun@ter2@::1:6379?db=3":   "in brackets",
		"redis://:p@hunter2/word@10.0.0.1":   "percent-encode what is special in a user name or password: / is %2F, @ is %40",
		"redis://:p@ss/hunter2@10.0.0.1":     "/ is %2F, @ is %40",
		"rediss://u:1/hunter2@10.0.0.1/3":    "/ is %2F, @ is %40",
		"redis://:1/hunter2@10.0.0.1":        "/ is %2F, @ is %40",
		"redis://u:12:34/hunter2@10.0.0.1":   "", // a slash in a password
		"redis://u:12:34/3?hunter2@10.0.0.1": "",
	} {
		_, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(url)})
		require.ErrorIs(t, err, redlock.ErrInvalid, url)
		require.ErrorContains(t, err, "Nodes[0].URL", url)
		require.ErrorContains(t, err, remedy, url)
		if remedy == "" {
			require.NotContains(t, err.Error(), "brackets", url)
		}
		require.NotContains(t, err.Error(), "hunter2", url)
	}
	for _, url := range []string{"redis://u:%23cret@[fe80::5]", "[::1]:6379", "unix:///a:b:c@d:e:f", "redis://u:a:b:c@10.0.0.1"} {
		c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(url)})
		require.NoError(t, err, url)
		require.NoError(t, c.Close())
	}
}

func FuzzNodeURL(f *testing.F) {
	for _, seed := range []string{"a", "a:1", "redis://u:hunter2@a:1/2", "rediss://hunter2@[::1]", "unix:///s?db=1", "redis://%", "://", "redis://u:hunter2@a:x/", "redis://u:pa/ss:hunter2@a", "redis://a?db=3", "rediss://u:x?:hunter2@a=1",
		"redis://u#:hunter2@a", "redis://::1:hunter2@a", "fe80::5"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		// No node of this configuration can be reached, and no client stays open.
		c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes(raw, raw)}) // twice: never valid
		if err == nil {
			c.Close()
			t.Fatal("the same node twice is valid")
		}
		require.ErrorIs(t, err, redlock.ErrInvalid)
		if strings.Contains(raw, ":hunter2@") {
			require.NotContains(t, err.Error(), "hunter2")
		}
	})
}

func TestInvalidLocksAreRefusedBeforeAnythingIsSent(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c := open(t, f)
	prefixed := open(t, f, func(cfg *redlock.Config) { cfg.Prefix = "redlock:" })
	useful := open(t, f, func(cfg *redlock.Config) { cfg.MinValidity = time.Second })
	for name, lock := range map[string]redlock.Lock{
		"no name":                     c.Mutex(""),
		"no second name":              c.Mutex("a", ""),
		"a long name":                 c.Mutex(strings.Repeat("x", 1025)),
		"the same name twice":         c.Mutex("a", "b", "a"),
		"the fences":                  c.Mutex("redlock:fence"),
		"the marker":                  c.Mutex("redlock:node"),
		"the quarantine":              c.Mutex("redlock:quarantine"),
		"a fair queue":                c.Mutex("redlock:fair:x"),
		"a read-write state":          c.Mutex("redlock:rw:x"),
		"a leader":                    c.Mutex("redlock:leader:x"),
		"by way of Prefix":            prefixed.Mutex("fence"),
		"a short TTL":                 c.Mutex("a").WithTTL(time.Millisecond),
		"a long TTL":                  c.Mutex("a").WithTTL(time.Minute),
		"no longest hold":             c.Mutex("a").WithMaxHold(0),
		"a hold without unit":         c.Mutex("a").WithMaxHold(20),
		"no useful longest hold":      useful.Mutex("a").WithMaxHold(time.Second),
		"a minimum hold without unit": c.Mutex("a").WithMinHold(20),
		"the zero Lock":               {},
		"the zero Lock, with":         redlock.Lock{}.WithTTL(time.Second).WithoutRenewal(),
	} {
		t.Run(name, func(t *testing.T) {
			_, err := lock.TryAcquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrInvalid)
			_, err = lock.Acquire(soon(t))
			require.ErrorIs(t, err, redlock.ErrInvalid)
		})
	}
}

func TestAcquiringUnderOneselfIsAnErrorAtOnce(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 1})
	c := open(t, f)
	require.NoError(t, c.Mutex("a", "b").Do(soon(t), func(ctx context.Context, l *redlock.Lease) error {
		for _, ctx := range []context.Context{ctx, l.Context(), l.With(context.Background())} {
			_, err := c.Mutex("c", "b").Acquire(ctx)
			require.ErrorIs(t, err, redlock.ErrInvalid)
			require.ErrorContains(t, err, `"b"`)
		}
		return c.Mutex("c").Do(ctx, func(ctx context.Context, _ *redlock.Lease) error {
			_, err := c.Mutex("a").Acquire(ctx) // this lock is held two contexts further out
			require.ErrorIs(t, err, redlock.ErrInvalid)
			return nil
		})
	}))
	l, err := c.Mutex("a").Acquire(soon(t))
	require.NoError(t, err)
	ctx := l.With(soon(t))
	require.NoError(t, l.Release(ctx))
	<-ctx.Done() // it follows the lease's own context
	require.ErrorIs(t, context.Cause(ctx), redlock.ErrReleased)
}

func TestOneServerHasOneVote(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 2})
	u, err := url.Parse(f.URLs()[0])
	require.NoError(t, err)
	again := "redis://localhost:" + u.Port()
	c := open(t, f, func(cfg *redlock.Config) { cfg.Nodes = redlock.Nodes(f.URLs()[0], again, f.URLs()[1]) })
	ctx := soon(t)
	l, err := c.Mutex("x").Acquire(ctx)
	require.NoError(t, err, "two servers of three nodes are a majority")
	require.NoError(t, l.Release(ctx))

	require.NoError(t, f.Nodes()[1].Kill())
	_, err = c.Mutex("x").TryAcquire(ctx)
	require.ErrorIs(t, err, redlock.ErrNoQuorum)
	require.ErrorIs(t, err, redlock.ErrInvalid)
	require.ErrorContains(t, err, "same server")
}

func TestNamesAreNeverMangled(t *testing.T) {
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	c, ctx := open(t, f, func(cfg *redlock.Config) { cfg.Prefix = "app/" }), soon(t)
	for _, name := range []string{"a b", " ", "naïve 鍵 🔒", "two\nlines\r\n", "nul\x00nul", "\xff\xfe", "{x}*?[", strings.Repeat("x", 1020)} {
		l, err := c.Mutex(name).Acquire(ctx)
		require.NoError(t, err, "%q", name)
		require.Equal(t, []string{name}, l.Names())
		spread(t, f, "app/"+name, l)
		require.NoError(t, l.Release(ctx))
	}
}

// Two sockets whose paths differ in case are two servers. A host's name is the same in any case.
func TestPathsOfSocketsDifferInCase(t *testing.T) {
	c, err := redlock.New(redlock.Config{Nodes: redlock.Nodes("unix:///run/a.sock", "unix:///run/A.sock")})
	require.NoError(t, err)
	require.NoError(t, c.Close())
	_, err = redlock.New(redlock.Config{Nodes: redlock.Nodes("redis://a:1", "redis://A:1")})
	require.ErrorContains(t, err, "one server has one vote")
}
