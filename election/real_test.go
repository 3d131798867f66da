package election_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	"github.com/quorumlock/redlock/election"
	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
)

// connect returns a client of these nodes that a busy machine does not disturb.
func connect(t *testing.T, urls []string, change ...func(*redlock.Config)) *redlock.Client {
	client, err := redlock.New(config(urls, change...))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

func config(urls []string, change ...func(*redlock.Config)) redlock.Config {
	cfg := redlock.Config{Nodes: redlock.Nodes(urls...), TTL: 5 * time.Second, NodeTimeout: 2 * time.Second}
	for _, change := range change {
		change(&cfg)
	}
	return cfg
}

// servers starts real nodes that grant.
func servers(t *testing.T) *fleet.Fleet {
	f := fleettest.Start(t, fleet.Process, fleet.Options{Nodes: 3})
	enroll(t, connect(t, f.URLs()))
	return f
}

// enroll has all nodes grant. On a busy machine, nodes may be too slow for one try.
func enroll(t *testing.T, client *redlock.Client, options ...redlock.EnrollOption) {
	t.Helper()
	err := client.Enroll(t.Context(), options...)
	for try := 1; try < 10 && err != nil; try++ {
		err = client.Enroll(t.Context(), options...)
	}
	require.NoError(t, err)
}

// candidateVariable makes the test binary a candidate of the test below: it has the URLs of the nodes.
const candidateVariable = "REDLOCK_ELECTION_CANDIDATE"

// Three processes, one is killed: another one follows.
func TestThreeProcessesOneIsKilled(t *testing.T) {
	if urls := os.Getenv(candidateVariable); urls != "" {
		beCandidate(t, strings.Fields(urls))
		return
	}
	t.Parallel()
	f := servers(t)
	leaders := election.New(connect(t, f.URLs()), "x", election.Options{}).Observe(t.Context())
	require.True(t, next(t, leaders).None())
	processes := map[string]*exec.Cmd{}
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestThreeProcessesOneIsKilled$")
		cmd.Env = append(os.Environ(), candidateVariable+"="+strings.Join(f.URLs(), " "))
		stdin, err := cmd.StdinPipe() // it ends when this process does
		require.NoError(t, err)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() {
			stdin.Close()
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
		label, err := bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		processes[strings.TrimSpace(label)] = cmd
	}
	var last election.Leader
	for len(processes) > 0 {
		leader := next(t, leaders)
		if leader.None() {
			continue
		}
		require.Greater(t, leader.Number, last.Number)
		require.Contains(t, processes, leader.Label)
		require.NoError(t, processes[leader.Label].Process.Kill())
		delete(processes, leader.Label)
		last = leader
	}
}

func beCandidate(t *testing.T, urls []string) {
	client := connect(t, urls)
	label := fmt.Sprint("candidate ", os.Getpid())
	fmt.Println(label)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	_ = election.New(client, "x", election.Options{Label: label}).Run(ctx, func(ctx context.Context, _ *election.Term) error {
		<-ctx.Done()
		return nil
	})
}

// The rights in docs/operations.md are enough.
func TestTheDocumentedRightsAreEnough(t *testing.T) {
	text, err := os.ReadFile("../docs/operations.md")
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^user locker on >SECRET (.*)$`).FindSubmatch(text)
	require.NotNil(t, line)
	rights := string(line[1])
	for name, rights := range map[string]string{
		"all":           rights,
		"prefix":        strings.Replace(rights, "~*", "~lock:* ~redlock:*", 1),
		"without hints": strings.Replace(rights, "&redlock:leader:*", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			f := servers(t)
			for _, n := range f.Nodes() {
				fleettest.SetUser(t, n, "locker", append([]string{"on", ">SECRET"}, strings.Fields(rights)...)...)
			}
			prefixed := func(cfg *redlock.Config) {
				if name == "prefix" {
					cfg.Prefix = "lock:"
				}
			}
			urls := f.URLs()
			for i := range urls {
				urls[i] = strings.Replace(urls[i], "redis://", "redis://locker:SECRET@", 1)
			}
			if name == "prefix" { // which is part of the configuration that the nodes hold
				enroll(t, connect(t, f.URLs(), prefixed), redlock.ChangeConfig())
			}
			e := election.New(connect(t, urls, prefixed), "x", election.Options{Label: "a", Poll: 100 * time.Millisecond})
			leaders := e.Observe(t.Context())
			require.True(t, next(t, leaders).None())
			for range 3 {
				term := campaign(t, e)
				require.Equal(t, leaderOf(term), next(t, leaders))
				require.NoError(t, term.Resign(t.Context()))
				require.True(t, next(t, leaders).None())
			}
			if name != "without hints" {
				for _, log := range tell(t, f, "ACL", "LOG") {
					require.Empty(t, log, "the server refused something")
				}
			}
		})
	}
}

// Servers that forgot the scripts get them again.
func TestServersThatForgotTheScripts(t *testing.T) {
	t.Parallel()
	f := servers(t)
	e := election.New(connect(t, f.URLs()), "x", election.Options{Label: "a"})
	leaders := e.Observe(t.Context())
	require.True(t, next(t, leaders).None())
	term := campaign(t, e)
	require.Equal(t, leaderOf(term), next(t, leaders))
	tell(t, f, "SCRIPT", "FLUSH")
	_ = term.Resign(t.Context()) // the release needs its script again too, so it may not be confirmed at once
	require.True(t, next(t, leaders).None())
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, node := range tell(t, f, "KEYS", "redlock:leader:*") {
			assert.Empty(t, node, "nothing stays behind")
		}
	}, 4*time.Second, 10*time.Millisecond, "before it expires")
}

// A garbage-collected Term is not renewed, as a garbage-collected Lease is not.
func TestATermThatIsDroppedEnds(t *testing.T) {
	t.Parallel()
	f := servers(t)
	e := election.New(connect(t, f.URLs()), "x", election.Options{})
	number := campaign(t, e).Number()
	stop := make(chan struct{})
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for {
			select {
			case <-stop:
				return
			case <-time.After(50 * time.Millisecond):
				runtime.GC()
			}
		}
	}()
	defer func() { close(stop); <-collected }()
	require.Greater(t, campaign(t, election.New(connect(t, f.URLs()), "x", election.Options{})).Number(), number)
}

// tell sends a command to all nodes.
func tell(t require.TestingT, f *fleet.Fleet, command string, args ...any) (replies []any) {
	for _, n := range f.Nodes() {
		conn, err := n.DialDirect(context.Background(), 10*time.Second)
		require.NoError(t, err)
		reply, err := conn.Do(command, args...)
		require.NoError(t, err)
		replies = append(replies, reply)
		conn.Close()
	}
	return replies
}

// A server sends a message to all its databases. An election of the same name in another one is another election.
func TestObserversHearNothingOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	f := servers(t)
	urls := f.URLs()
	for i := range urls {
		urls[i] += "/1"
	}
	other := connect(t, urls)
	enroll(t, other)
	ours := election.New(connect(t, f.URLs()), "x", election.Options{Label: "ours"})
	theirs := election.New(other, "x", election.Options{Label: "theirs"})

	term := campaign(t, ours)
	leaders := ours.Observe(t.Context())
	require.Equal(t, leaderOf(term), next(t, leaders))
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		for _, node := range tell(t, f, "PUBSUB", "CHANNELS", "redlock:leader:*") {
			assert.Len(t, node, 1, "it has subscribed")
		}
	}, 4*time.Second, 10*time.Millisecond)
	later := campaign(t, theirs)
	require.Greater(t, later.Number(), term.Number())
	heard := theirs.Observe(t.Context())
	require.Equal(t, leaderOf(later), next(t, heard))
	require.NoError(t, later.Resign(t.Context()))
	require.True(t, next(t, heard).None(), "they hear of their own")

	select {
	case leader := <-leaders:
		require.Fail(t, "what another election says", "%v", leader)
	case <-time.After(100 * time.Millisecond):
	}
	require.NoError(t, term.Resign(t.Context()))
	require.True(t, next(t, leaders).None())
}
