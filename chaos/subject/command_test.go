//go:build unix

package subject

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/history"
)

// speaks begins programs for sh. next reads a request: its id is $id. say writes a reply.
const speaks = `
next() { IFS= read -r line || exit 0; id=${line#*\"id\":}; id=${id%%,*}; }
say() { printf '%s\n' "$1"; }
refuse() { next; say "{\"id\":$id,\"refused\":true}"; }
grant() { next; say "{\"id\":$id,\"ok\":true,\"lease\":\"$1\"$2}"; }
`

// A said is what programs write to their standard error, line by line.
type said struct {
	mu   sync.Mutex // guards text
	text bytes.Buffer
	line chan string // has room for all lines that a test waits for
}

func (s *said) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case s.line <- strings.TrimPrefix(strings.TrimSuffix(string(p), "\n"), "client 3: "):
	default:
	}
	return s.text.Write(p)
}

// open starts a program that refuses its first acquire, the one of Open.
func open(t *testing.T, program string, o Options) (Client, *said, error) {
	t.Helper()
	errs := &said{line: make(chan string, 300)}
	o.Client, o.URLs = 3, []string{"redis://127.0.0.1:1", "redis://127.0.0.1:2"}
	if o.TTL == 0 {
		o.TTL = time.Hour
	}
	client, err := Command{Line: speaks + program, Stderr: errs}.Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { require.NoError(t, client.Close()) })
	}
	return client, errs, err
}

func mustOpen(t *testing.T, program string, o Options) (Client, *said) {
	t.Helper()
	client, errs, err := open(t, program, o)
	require.NoError(t, err)
	return client, errs
}

func TestAProgramGetsWhatItNeedsInItsEnvironment(t *testing.T) {
	_, errs := mustOpen(t, `echo "$REDLOCK_CHAOS_URLS $REDLOCK_CHAOS_CLIENT $REDLOCK_CHAOS_TTL_MS" >&2; refuse; next`, Options{TTL: 1500 * time.Millisecond})
	require.Equal(t, "redis://127.0.0.1:1,redis://127.0.0.1:2 3 1500", <-errs.line)
	_, err := Command{Line: "true"}.Open(t.Context(), Options{URLs: []string{"unix:///x"}})
	require.EqualError(t, err, `"unix:///x": a command can be given redis:// URLs only`)
}

func TestALeaseOfAProgramIsWhatItSays(t *testing.T) {
	client, errs := mustOpen(t, `
grant open; next; say "{\"id\":$id,\"ok\":true}"
grant a ',"fence":18446744073709551615,"token":"t"'
next; echo "$line" >&2; say "{\"id\":$id,\"ok\":true}"
next; say "{\"id\":$id,\"ok\":false}"
next; say "{\"id\":$id,\"ok\":true}"
grant b
next; say "{\"id\":$id,\"error\":\"what is that\"}"
next; say "{\"id\":$id,\"error\":\"it broke\"}"
next; say "{\"id\":$id,\"error\":\"no quorum\"}"
refuse; next`, Options{})
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.EqualValues(t, uint64(1<<64-1), lease.Fence())
	require.Equal(t, "t", lease.Token())
	require.True(t, lease.Valid())
	require.Equal(t, `{"id":4,"op":"valid","lease":"a"}`, <-errs.line)
	require.False(t, lease.Valid())
	require.Empty(t, Untold(lease))
	require.NoError(t, lease.Release(t.Context()))
	lease, err = client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, lease.Valid(), "by its TTL")
	require.True(t, lease.Valid(), "and it is not asked again")
	require.Equal(t, []string{history.Validity, history.FencingTokens}, Untold(lease))
	require.EqualError(t, lease.Release(t.Context()), "it broke")
	_, err = client.Acquire(t.Context(), "k")
	require.EqualError(t, err, "no quorum")
	require.NotErrorIs(t, err, ErrRefused)
	_, err = client.Acquire(t.Context(), "k")
	require.ErrorIs(t, err, ErrRefused)
}

func TestALeaseOfAProgramEndsWhenItSaysSoUnasked(t *testing.T) {
	client, _ := mustOpen(t, `refuse; grant a; say '{"lost":"a"}'; say '{"lost":"a"}'; say '{"lost":"of nobody"}'; next; say "{\"id\":$id,\"ok\":false}"; next`, Options{})
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	<-lease.Lost()
	require.False(t, lease.Valid())
	require.Equal(t, errNotOurs, lease.Release(t.Context()))
}

func TestAProgramMayAnswerInAnyOrder(t *testing.T) {
	client, _ := mustOpen(t, `refuse
next; one=$id; a=${line#*\"name\":\"}; a=${a%%\"*}
next; b=${line#*\"name\":\"}; b=${b%%\"*}
say "{\"id\":$id,\"ok\":true,\"lease\":\"$b\"}"; say "{\"id\":$one,\"ok\":true,\"lease\":\"$a\"}"; next`, Options{})
	var wg sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		wg.Go(func() {
			lease, err := client.Acquire(t.Context(), name)
			if err != nil || lease.(*commandLease).reply.Lease != name {
				t.Error(lease, err)
			}
		})
	}
	wg.Wait()
}

// Nobody knows whether it got the lock. If it did, nobody believes in that, and it gives it back.
func TestALockThatAProgramGrantsTooLateIsReleased(t *testing.T) {
	client, errs := mustOpen(t, `refuse; next; late=$id; echo asked >&2
next; say "{\"id\":$late,\"ok\":true,\"lease\":\"late\"}"; second=$id
next; echo "$line" >&2; say "{\"id\":$id,\"ok\":true}"; say "{\"id\":$second,\"refused\":true}"; next`, Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-errs.line
		cancel()
	}()
	_, err := client.Acquire(ctx, "k")
	require.ErrorContains(t, err, "no reply to acquire")
	require.ErrorIs(t, err, context.Canceled, "at once")
	require.NotErrorIs(t, err, ErrRefused)
	_, err = client.Acquire(t.Context(), "k")
	require.ErrorIs(t, err, ErrRefused)
	require.Contains(t, <-errs.line, `"op":"release","lease":"late"`)
}

func TestAProgramThatDoesNotSpeakIsRefusedWithTheReason(t *testing.T) {
	for program, want := range map[string]string{
		`exit 3`:                        "the command ended by itself (exit status 3)",
		`/nonexistent/lock`:             "not found",
		`kill -9 $$`:                    "the command ended by itself (signal: killed)",
		`echo "no node" >&2; exit 1`:    `the command ended by itself (exit status 1); it said "no node"`,
		`echo got the lock; cat`:        `the command wrote the line "got the lock": invalid character 'g'`,
		`say '{"id":7,"refused":true}'`: `{\"id\":7,\"refused\":true}": id 7 was answered before, or never asked`,
		`refuse; say '{"id":1,"ok":1}'`: "cannot unmarshal number",
		`next; say "{\"id\":$id}"; cat`: "it needs one of ok, refused: true and error",
		`next; say "{\"id\":$id,\"ok\":true,\"refused\":true}"`: "it needs one of ok, refused: true and error",
		`next; say "{\"id\":$id,\"ok\":true}"`:                  "the lock was granted without a lease",
		`next; say "{\"id\":$id,\"ok\":false}"`:                 "an acquire is answered with ok: true, refused: true or error",
		`next; say "{\"id\":$id,\"ok\":true,\"fencing\":7}"`:    `unknown field "fencing"`,
		`next; say "{\"id\":$id,\"refused\":true} {}"`:          "something follows the object",
		`next; say "{\"id\":$id,\"lost\":\"a\"}"`:               "lost comes alone",
		`grant a; next; say "{\"id\":$id,\"refused\":true}"`:    "only an acquire is refused; answer release with ok or error",
		`head -c 70000 /dev/zero | tr '\0' x; cat`:              "the command wrote a line of more than 65536 bytes",
		`exec >&-; cat >/dev/null`:                              "the command closed its standard output, and did not end",
	} {
		client, _, err := open(t, program, Options{})
		if err == nil { // it said something wrong after a right reply to the first acquire
			_, err = client.Acquire(t.Context(), "k")
		}
		require.ErrorContains(t, err, want, program)
		require.NotErrorIs(t, err, ErrRefused)
		require.NotContains(t, err.Error(), "\n", program)
	}
}

func TestAProgramThatAnswersNothingIsRefusedInTime(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := Command{Line: "exec cat >/dev/null"}.Open(ctx, Options{})
	require.EqualError(t, err, "the command did not answer its first request in time")
}

// A lock that does nothing any more would look safe.
func TestAProgramThatEndsInTheMiddleAbortsTheRun(t *testing.T) {
	for program, want := range map[string]string{
		`refuse; grant a; exit 1`:                                         "client 3: the command ended by itself (exit status 1)",
		`refuse; grant a; echo oops; cat`:                                 `client 3: the command wrote the line "oops"`,
		`refuse; grant a; say "{\"id\":$id,\"ok\":true,\"lease\":\"b\"}"`: "was answered before, or never asked",
	} {
		failed := make(chan error, 2)
		client, _ := mustOpen(t, program, Options{Fail: func(err error) { failed <- err }})
		lease, err := client.Acquire(t.Context(), "k")
		require.NoError(t, err)
		for lease.Valid() {
			t.Error("who would know")
		}
		require.ErrorContains(t, <-failed, want)
		require.False(t, lease.Valid(), "nobody believes any more")
		_, err = client.Acquire(t.Context(), "k")
		require.Error(t, err)
		require.Error(t, lease.Release(t.Context()))
		require.NoError(t, client.Close())
		require.Empty(t, failed, "once")
	}
}

func TestALeaseThatIsJudgedByItsTTLEndsWithItsProgram(t *testing.T) {
	failed := make(chan error, 1)
	client, _ := mustOpen(t, `refuse; grant a; next; say "{\"id\":$id,\"error\":\"no\"}"; next; exit 1`, Options{Fail: func(err error) { failed <- err }})
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, lease.Valid())
	require.Error(t, lease.Release(t.Context()))
	require.Error(t, <-failed)
	require.False(t, lease.Valid())
}

func TestAProgramThatDoesNotReadAbortsTheRun(t *testing.T) {
	failed := make(chan error, 2)
	client, errs := mustOpen(t, `refuse; exec <&-; echo closed >&2; exec sleep 1000`, Options{Fail: func(err error) { failed <- err }})
	require.Equal(t, "closed", <-errs.line)
	_, err := client.Acquire(t.Context(), "k")
	require.ErrorContains(t, err, "the command does not read its standard input")
	require.EqualError(t, <-failed, "client 3: "+err.Error())
}

func TestAProgramEndsWithItsInputAndIsNotMissed(t *testing.T) {
	failed := make(chan error, 1)
	client, errs := mustOpen(t, `trap 'echo bye >&2' EXIT; refuse; next`, Options{Fail: func(err error) { failed <- err }})
	require.NoError(t, client.Close())
	require.NoError(t, client.Close(), "again")
	require.Equal(t, "bye", <-errs.line)
	require.Empty(t, failed)
	_, err := client.Acquire(t.Context(), "k")
	require.EqualError(t, err, "the client is closed")
}

// One program ends, and leaves behind what it started; another one never ends.
func TestNothingIsLeftOfAProgram(t *testing.T) {
	for _, end := range []string{`next`, `while :; do sleep 1000; done`} {
		client, errs := mustOpen(t, `sleep 1000 >/dev/null 2>&1 & echo $! >&2; refuse; `+end, Options{})
		pid, err := strconv.Atoi(<-errs.line)
		require.NoError(t, err)
		require.NoError(t, syscall.Kill(pid, 0))
		require.NoError(t, client.Close())
		require.Eventually(t, func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) || isZombie(pid) }, 10*time.Second, time.Millisecond)
	}
}

func TestWhatAProgramSaysIsShownAndBounded(t *testing.T) {
	client, errs := mustOpen(t, `i=0; while [ $i -lt 300 ]; do printf 'line %d\033[2J\n' $i >&2; i=$((i+1)); done; refuse; next`, Options{})
	require.NoError(t, client.Close())
	shown := strings.Split(strings.TrimSuffix(errs.text.String(), "\n"), "\n")
	require.Len(t, shown, maxShown+1)
	require.Equal(t, "client 3: line 0?[2J", shown[0])
	require.Equal(t, "client 3: … (further lines are not shown)", shown[maxShown])
}

// isZombie reports whether the process has ended, and nobody has waited for it yet.
func isZombie(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(stat), ") Z ")
}
