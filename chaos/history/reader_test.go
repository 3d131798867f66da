package history

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
)

const begin = `{"at":0,"kind":"start","run":{"version":1,"scenario":"s","subject":"x","fleet":"f","nodes":["n1","n2"],"clients":2,"seed":1,"seconds":1,"ttl":5}}`

// lines joins the lines of a history, each with a newline.
func lines(all ...string) string { return strings.Join(all, "\n") + "\n" }

func at(t int, rest string) string { return fmt.Sprintf(`{"at":%d,"kind":%s}`, t, rest) }

func whole() string {
	return lines(begin,
		at(1, `"acquire","client":1,"op":1,"resource":"r"`),
		at(2, `"acquire","client":2,"op":2,"resource":"r"`),
		at(2, `"granted","client":1,"op":1,"fence":3,"token":"a"`),
		at(2, `"owner","resource":"r","node":"n1","token":"a"`),
		at(3, `"read","op":1,"value":4`),
		at(3, `"write","op":1,"value":5`),
		at(3, `"write","op":1,"value":5,"fenced":true`),
		at(4, `"written","op":1,"ok":true`),
		at(4, `"written","op":1,"ok":true,"fenced":true`),
		at(5, `"fault","node":"n2","fault":"kill","begin":true`),
		at(6, `"lost","op":1,"until":4`),
		at(7, `"release","op":1`),
		at(8, `"freed","op":1,"error":"n2 is gone"`),
		at(9, `"refused","op":2`),
		at(9, `"note","text":"enough"`),
		at(9, `"end"`))
}

func TestAWholeHistoryIsRead(t *testing.T) {
	events, err := ReadAll(strings.NewReader(whole()))
	require.NoError(t, err)
	require.Len(t, events, 17)
	require.Equal(t, []string{"n1", "n2"}, events[0].Run.Nodes)
	require.Equal(t, Event{At: 3, Kind: Read, Client: 1, Op: 1, Resource: "r", Value: 4}, events[5],
		"what an event of an op leaves out is that of its acquire")
	for _, slow := range []io.Reader{iotest.OneByteReader(strings.NewReader(whole())), iotest.HalfReader(strings.NewReader(whole()))} {
		again, err := ReadAll(slow)
		require.NoError(t, err)
		require.Equal(t, events, again)
	}
	for e, err := range Validate(events) {
		require.NoError(t, err)
		require.Equal(t, events[0], e)
		break
	}
}

// Each text is a history with an error in its last line, or after it.
var malformed = []struct {
	name, text string
	line       int
	says       string
}{
	{"nothing at all", "", 1, "empty: there is no start"},
	{"a first line that is no start", lines(at(1, `"end"`)), 1, `the first line is "end", not "start"`},
	{"a second start", lines(begin, begin), 2, "a second start"},
	{"a start without a run", lines(`{"at":0,"kind":"start"}`), 1, "start without a run"},
	{"a run elsewhere", lines(begin, at(1, `"note","run":{"version":1}`)), 2, "only the start has"},
	{"another version", lines(strings.Replace(begin, `"version":1`, `"version":2`, 1)), 1, "version 2 of the format is unknown, this program knows 1"},
	{"another version with other fields", lines(`{"at":0,"kind":"start","colour":"red","run":{"version":7}}`), 1, "version 7 of the format is unknown"},
	{"no version", lines(strings.Replace(begin, `"version":1,`, ``, 1)), 1, "version 0 of the format is unknown"},
	{"no TTL", lines(strings.Replace(begin, `"ttl":5`, `"ttl":0`, 1)), 1, "the run's ttl is 0"},
	{"a quorum of too many", lines(strings.Replace(begin, `"ttl":5`, `"ttl":5,"quorum":3`, 1)), 1, "quorum is 3 of 2 nodes"},
	{"a node twice", lines(strings.Replace(begin, `"n2"`, `"n1"`, 1)), 1, `node "n1" twice`},
	{"no end", lines(begin, at(1, `"note"`)), 3, "missing: the history has no end"},
	{"a line after the end", lines(begin, at(1, `"end"`), at(1, `"note"`)), 3, "note after the end"},
	{"a last line cut off", begin + "\n" + at(1, `"end"`), 2, "cut off: the line does not end"},
	{"a last line cut off in its middle", begin + "\n" + `{"at":1,"ki`, 2, "cut off: the line does not end"},
	{"an event cut off in a line", lines(begin, `{"at":1,"kind":`), 2, "the line ends before the event does"},
	{"an event over two lines", lines(begin, `{"at":1,`, `"kind":"end"}`), 2, "the line ends before the event does"},
	{"two events in a line", lines(begin, at(1, `"note"`)+at(1, `"end"`)), 2, "something follows it"},
	{"a comma after an event", lines(begin, at(1, `"note"`)+","), 2, "something follows it"},
	{"an empty line", lines(begin, "", at(1, `"end"`)), 2, "the line ends before the event does"},
	{"what is not JSON", lines(begin, "kill n1"), 2, "not an event: invalid character"},
	{"another JSON value", lines(begin, "17"), 2, "not an event: json: cannot unmarshal number"},
	{"a field of the wrong type", lines(begin, at(1, `"note","text":5`)), 2, "not an event: json: cannot unmarshal number"},
	{"an unknown field", lines(begin, at(1, `"note","colour":"red"`)), 2, `unknown field "colour"`},
	{"an unknown kind", lines(begin, at(1, `"lunch"`)), 2, `unknown kind "lunch"`},
	{"no kind", lines(begin, `{"at":1}`), 2, `unknown kind ""`},
	{"a line that is too long", lines(begin, at(1, `"note","text":"`+strings.Repeat("x", MaxLine)+`"`)), 2, "longer than 1048576 bytes"},
	{"time that goes back", lines(begin, at(5, `"note"`), at(4, `"end"`)), 3, "time goes back: from 5 to 4"},
	{"a time before the run", lines(`{"at":-1,"kind":"start","run":{"version":1}}`), 1, "time goes back: from 0 to -1"},
	{"a client below 1", lines(begin, at(1, `"acquire","client":-1,"op":1,"resource":"r"`)), 2, "client -1"},
	{"an acquire without an op", lines(begin, at(1, `"acquire","client":1,"resource":"r"`)), 2, "acquire without an op"},
	{"an acquire without a client", lines(begin, at(1, `"acquire","op":1,"resource":"r"`)), 2, "acquire without a client"},
	{"an acquire without a resource", lines(begin, at(1, `"acquire","op":1,"client":1`)), 2, "acquire without a resource"},
	{"an op acquired twice", lines(begin, asked, asked), 3, "op 1 is acquired a second time"},
	{"a grant of nothing", lines(begin, at(1, `"granted","op":17`)), 2, "granted of op 17, which was never acquired"},
	{"a grant to another", lines(begin, asked, at(1, `"granted","op":1,"client":2`)), 3, "granted of op 1 by client 2, but client 1 acquired it"},
	{"a grant of something else", lines(begin, asked, at(1, `"granted","op":1,"resource":"q"`)), 3, `granted of op 1 for "q", but it requested "r"`},
	{"a second answer", lines(begin, asked, at(1, `"refused","op":1`), at(1, `"granted","op":1`)), 4, "granted of op 1, which was already answered"},
	{"a failure of a lease", lines(begin, asked, had, at(1, `"failed","op":1`)), 4, "failed of op 1, which was already answered"},
	{"a loss of what was not granted", lines(begin, asked, at(1, `"lost","op":1,"until":1`)), 3, "lost of op 1, which was not granted"},
	{"a release of what was refused", lines(begin, asked, at(1, `"refused","op":1`), at(1, `"release","op":1,"until":1`)), 4, "release of op 1, which was not granted"},
	{"a loss that tells no until", lines(begin, asked, had, at(1, `"lost","op":1`)), 4, "lost of op 1 without until"},
	{"a release that tells no until", lines(begin, asked, had, at(1, `"release","op":1`)), 4, "release of op 1 without until"},
	{"a second loss", lines(begin, asked, had, at(1, `"lost","op":1,"until":1`), at(1, `"lost","op":1,"until":1`)), 5, "lost of op 1 for the second time"},
	{"a second release", lines(begin, asked, had, at(1, `"release","op":1,"until":1`), at(1, `"release","op":1,"until":1`)), 5, "release of op 1 for the second time"},
	{"a release that returns before it begins", lines(begin, asked, had, at(1, `"freed","op":1`)), 4, "freed of op 1, which was not released"},
	{"a release that returns twice", lines(begin, asked, had, at(1, `"release","op":1,"until":1`), at(1, `"freed","op":1`), at(1, `"freed","op":1`)), 6, "freed of op 1 for the second time"},
	{"a read without a lease", lines(begin, asked, at(1, `"read","op":1`)), 3, "read of op 1, which was not granted"},
	{"a write on a write", lines(begin, asked, had, at(1, `"write","op":1`), at(1, `"write","op":1`)), 5, "write of op 1 before its last one was answered"},
	{"an answer to no write", lines(begin, asked, had, at(1, `"written","op":1`)), 4, "written of op 1, which has no such write"},
	{"an answer of the other resource", lines(begin, asked, had, at(1, `"write","op":1,"fenced":true`), at(1, `"written","op":1`)), 5, "written of op 1, which has no such write"},
	{"an unknown role", lines(begin, at(1, `"acquire","client":1,"op":1,"resource":"r","role":"king"`)), 2, `unknown role "king"`},
	{"more permits than there are", lines(begin, at(1, `"acquire","client":1,"op":1,"resource":"r","permits":2`)), 2, "op 1 wants 2 permits of 0"},
	{"fewer permits than none", lines(strings.Replace(begin, `"ttl":5`, `"ttl":5,"permits":-1`, 1)), 1, "permits are -1"},
	{"a lock taken over from nobody", lines(begin, at(1, `"acquire","client":1,"op":1,"resource":"r","from":7`)), 2, "op 1 goes on with op 7, which did not hand"},
	{"a lock taken over that was only released", lines(begin, asked, had, at(1, `"release","op":1,"until":1`), at(1, `"acquire","client":1,"op":2,"resource":"r","from":1`)), 5, "op 2 goes on with op 1"},
	{"a place in no queue", lines(begin, at(1, `"queued","op":1,"since":1`)), 2, "queued of op 1, which was never acquired"},
	{"a place from later on", lines(begin, asked, at(1, `"queued","op":1,"since":2`)), 3, "queued of op 1"},
	{"a second place", lines(begin, asked, at(1, `"queued","op":1,"since":1`), at(1, `"queued","op":1,"since":1`)), 4, "queued of op 1 a second time"},
	{"an owner on an unknown node", lines(begin, at(1, `"owner","resource":"r","node":"n9"`)), 2, `node "n9" is not a node of the run`},
	{"an owner seen later", lines(begin, at(1, `"owner","resource":"r","node":"n1","since":99`)), 2, "owner since 99, which is later"},
	{"an owner of nothing", lines(begin, at(1, `"owner","node":"n1"`)), 2, "owner without a node or a resource"},
	{"a fault without a name", lines(begin, at(1, `"fault","node":"n1","begin":true`)), 2, "fault without its name"},
	{"a fault of an unknown node", lines(begin, at(1, `"fault","fault":"kill","node":"n9"`)), 2, `node "n9" is not a node of the run`},
}

const (
	asked = `{"at":1,"kind":"acquire","client":1,"op":1,"resource":"r"}`
	had   = `{"at":1,"kind":"granted","op":1}`
)

func TestAMalformedHistoryIsRefusedWithItsLine(t *testing.T) {
	for _, m := range malformed {
		t.Run(m.name, func(t *testing.T) {
			events, err := ReadAll(strings.NewReader(m.text))
			require.Nil(t, events)
			var where *LineError
			require.ErrorAs(t, err, &where)
			require.Equal(t, m.line, where.Line)
			require.ErrorContains(t, err, fmt.Sprintf("history: line %d: ", m.line))
			require.ErrorContains(t, err, m.says)
		})
	}
}

func TestAnErrorOfTheReaderIsTold(t *testing.T) {
	broken := errors.New("the disk is gone")
	_, err := ReadAll(io.MultiReader(strings.NewReader(lines(begin, at(1, `"note"`))), iotest.ErrReader(broken)))
	require.ErrorIs(t, err, broken)
	require.EqualError(t, err, "history: line 3: the disk is gone")
}

func TestEventsAreReadUntilTheOneThatIsWrong(t *testing.T) {
	var kinds []Kind
	var last error
	for e, err := range All(strings.NewReader(lines(begin, at(1, `"note"`), at(1, `"lunch"`), at(1, `"end"`)))) {
		if err == nil {
			kinds = append(kinds, e.Kind)
		}
		last = err
	}
	require.Equal(t, []Kind{Start, Note}, kinds)
	require.EqualError(t, last, `history: line 3: unknown kind "lunch"`)
}

func TestLinesLongerThanTheBufferAreRead(t *testing.T) {
	long := strings.Repeat("x", MaxLine-100)
	events, err := ReadAll(strings.NewReader(lines(begin, at(1, `"note","text":"`+long+`"`), at(1, `"note","text":"short"`), at(1, `"end"`))))
	require.NoError(t, err)
	require.Equal(t, long, events[1].Text)
	require.Equal(t, "short", events[2].Text)
}

// Every prefix of a history is refused: a history that was cut off is noticed, wherever the cut is.
func TestNoPrefixOfAHistoryIsRead(t *testing.T) {
	text := whole()
	for n := range len(text) {
		_, err := ReadAll(strings.NewReader(text[:n]))
		require.Error(t, err, "the first %d bytes", n)
	}
}

func FuzzReadAll(f *testing.F) {
	f.Add([]byte(whole()))
	for _, m := range malformed {
		if len(m.text) < 1000 {
			f.Add([]byte(m.text))
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		events, err := ReadAll(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		require.Equal(t, End, events[len(events)-1].Kind)
		for _, err := range Validate(events) {
			require.NoError(t, err)
		}
	})
}
