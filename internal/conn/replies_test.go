package conn

import (
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/gomodule/redigo/redis"
	"github.com/stretchr/testify/require"
)

// A said is a server that has said all that it will.
type said struct {
	net.Conn
	io.Reader
}

func (s said) Read(p []byte) (int, error)    { return s.Reader.Read(p) }
func (said) SetReadDeadline(time.Time) error { return nil }
func (said) Close() error                    { return nil }

// reads has redigo read so many replies of a text that comes as it will: at once, or byte by byte.
func reads(text string, replies int, byteByByte bool) (last any, err error) {
	reader := io.Reader(strings.NewReader(text))
	if byteByByte {
		reader = iotest.OneByteReader(reader)
	}
	c := redis.NewConn(&Net{Conn: said{nil, reader}, WriteTimeout: time.Second}, 0, 0)
	for range replies {
		if last, err = c.Receive(); err != nil && !isRefusal(err) {
			return nil, err
		}
	}
	return last, err
}

func TestAReplyThatWouldEndTheProcessEndsTheConnection(t *testing.T) {
	for name, text := range map[string]string{
		"a text of the largest length":       fmt.Sprintf("$%d\r\n", int64(math.MaxInt64)),
		"a text whose length wraps":          "$99999999999999999999999\r\n",
		"a text of 64 MiB and a byte":        fmt.Sprintf("$%d\r\n", maxReply+1),
		"a list of the largest length":       fmt.Sprintf("*%d\r\n", int64(math.MaxInt64)),
		"a list of a terabyte":               fmt.Sprintf("*%d\r\n", int64(1<<40)),
		"a list that grows too large":        "*3\r\n" + strings.Repeat(fmt.Sprintf("*%d\r\n", maxReply/elementSize/2), 3),
		"texts that grow too large":          "*3\r\n" + strings.Repeat(fmt.Sprintf("$%d\r\n%s\r\n", maxReply/3, strings.Repeat("x", maxReply/3)), 3),
		"lists a million deep":               strings.Repeat("*1\r\n", 1e6),
		"a length in a million digits":       "$" + strings.Repeat("0", 1e6) + "1\r\nx\r\n",
		"a line without end":                 "+" + strings.Repeat("x", 1e6),
		"an error without end":               "-ERR " + strings.Repeat("x", 1e6),
		"no line end behind a text, and on":  "$1\r\nx" + strings.Repeat("y", 1e6),
		"more behind a reply that was right": "+OK\r\n" + fmt.Sprintf("$%d\r\n", int64(math.MaxInt64)),
	} {
		for _, byteByByte := range []bool{false, true} {
			if byteByByte && len(text) > 1<<21 {
				continue
			}
			t.Run(fmt.Sprint(name, byteByByte), func(t *testing.T) {
				_, err := reads(text, 2, byteByByte)
				require.ErrorContains(t, err, "it is no Redis server, so check the port")
			})
		}
	}
}

func TestRepliesOfARedisServerAreReadAsTheyAre(t *testing.T) {
	text := strings.Join([]string{"+OK", ":-12", "$-1", "*-1", "$0", "", "*0", "$5", "a\n\r\nb", "-ERR no", "*2", ":1", "*2", "*0", "*1", "$1", "x",
		"$" + fmt.Sprint(maxReply/2), strings.Repeat("x", maxReply/2), "$" + fmt.Sprint(maxReply/2), strings.Repeat("y", maxReply/2), "+end", ""}, "\r\n")
	for range 3 {
		last, err := reads(text, 12, false)
		require.NoError(t, err)
		require.Equal(t, "end", last)
	}
}

// What the two make of any bytes is the same, or the connection ends.
func FuzzReplies(f *testing.F) {
	for _, seed := range []string{"*2\r\n$1\r\nx\r\n:5\r\n+OK\r\n", "$-1\r\n*-1\r\n$0\r\n\r\n", "*1\r\n*1\r\n*0\r\n-ERR\r\n", "$3\r\nabcde\r\n", "\r\n", "$\r\n", "*+1\r\n"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var whole, parts replies
		errWhole := whole.follow([]byte(text))
		var errParts error
		for i := 0; i < len(text) && errParts == nil; i++ {
			errParts = parts.follow([]byte(text[i : i+1]))
		}
		require.Equal(t, errWhole, errParts)
		if errWhole == nil {
			require.Equal(t, whole, parts)
			_, _ = reads(text, 1+len(text), true) // redigo must not panic
		}
	})
}
