package fault_test

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/chaos/fault"
)

var examples = []fault.Fault{
	fault.On(fault.Kill, "node-1"),
	fault.On(fault.Pause, "node-2"),
	fault.On(fault.Cut, "node-3"),
	fault.On(fault.Cut, "node-3").For(2),
	fault.On(fault.CutReplies, "node-1").For(12),
	{Verb: fault.Delay, Node: "node-1", By: 50 * time.Millisecond},
	{Verb: fault.Delay, Node: "node-1", Client: 3, By: 1500 * time.Microsecond},
	{Verb: fault.Clock, Node: "node-1", By: time.Minute},
	{Verb: fault.Clock, Node: "node-1", By: -2 * time.Minute},
	{Verb: fault.ClientClock, Client: 2, By: time.Hour},
	fault.On(fault.RestartEmpty, "node-1"), fault.On(fault.Save, "node-1"), fault.On(fault.RestartOldRDB, "node-1"),
	fault.On(fault.FlushAll, "node-1"), fault.On(fault.Replace, "node-1"), fault.On(fault.Follow, "node-1"),
	fault.On(fault.Lag, "node-1"), fault.On(fault.Promote, "node-1"),
	fault.On(fault.Detach, "node-1"), fault.On(fault.Failback, "node-1"), fault.On(fault.Unsubscribe, "node-1"),
}

func TestAFaultPrintsAsItParses(t *testing.T) {
	for _, f := range examples {
		back, err := fault.Parse(f.String())
		require.NoError(t, err, f.String())
		assert.Equal(t, f, back)
	}
	assert.Equal(t, "clock(node-1,+1m0s)", examples[7].String())
	assert.Equal(t, "delay(node-1,client-3,1.5ms)", examples[6].String())
	f, err := fault.Parse(" cut( node-1 , client-2 ) ")
	require.NoError(t, err)
	assert.Equal(t, fault.On(fault.Cut, "node-1").For(2), f)
}

func TestWhatIsNoFaultIsRefusedWithTheReason(t *testing.T) {
	for text, why := range map[string]string{
		"":                           "write it as",
		"kill":                       "write it as",
		"kill(node-1":                "write it as",
		"kill(node-1) now":           "write it as",
		"explode(node-1)":            "there are client-clock, clock, cut,",
		"kill()":                     "one node",
		"kill(node-1,node-2)":        "one node",
		"kill(node-1,client-1)":      "takes no client",
		"kill(node-1,50ms)":          "takes no duration",
		"delay(node-1)":              "needs a duration",
		"delay(node-1,-1s)":          "above 0",
		"delay(node-1,1s,2s)":        "two durations",
		"clock(client-1,1s)":         "a node",
		"client-clock(node-1,1s)":    "a node",
		"cut(node-1,client-0)":       "counted from client-1",
		"cut(node-1,client-x)":       "counted from client-1",
		"client-clock(client-1)":     "needs a duration",
		"cut(client-1,client-2)":     "counted from client-1",
		"cut(node-1,client-1,100ms)": "takes no duration",
	} {
		_, err := fault.Parse(text)
		require.ErrorContains(t, err, why, text)
	}
}

func FuzzParseTakesWhatStringPrints(f *testing.F) {
	for _, e := range examples {
		f.Add(e.String())
	}
	f.Fuzz(func(t *testing.T, text string) {
		one, err := fault.Parse(text)
		if err != nil {
			return
		}
		back, err := fault.Parse(one.String())
		require.NoError(t, err, one.String())
		require.Equal(t, one, back)
	})
}

var everyVerb = []fault.Verb{
	fault.Kill, fault.Pause, fault.Cut, fault.CutReplies, fault.Delay, fault.RestartEmpty, fault.FlushAll,
}

func random(seed uint64) fault.Schedule {
	nodes := []string{"node-1", "node-2", "node-3"}
	return fault.Random(rand.New(rand.NewPCG(seed, 0)), nodes, everyVerb, time.Minute, time.Second)
}

func TestARandomScheduleIsItsSeedsAndPrintsAsItParses(t *testing.T) {
	s := random(7)
	require.Greater(t, len(s), 10)
	assert.Equal(t, s, random(7))
	assert.NotEqual(t, s, random(8))
	back, err := fault.ParseSchedule(s.String())
	require.NoError(t, err)
	assert.Equal(t, s, back)
}

func TestARandomScheduleHurtsANodeByOneFaultAtATimeAndEndsInTime(t *testing.T) {
	for seed := range uint64(50) {
		busy := map[string]time.Duration{}
		last := time.Duration(0)
		for _, f := range random(seed) {
			assert.GreaterOrEqual(t, f.At, last)
			assert.GreaterOrEqual(t, f.At, busy[f.Fault.Node], "seed %d: %v", seed, f)
			assert.LessOrEqual(t, f.At+f.Lasts, time.Minute)
			last, busy[f.Fault.Node] = f.At, f.At+f.Lasts
		}
	}
}

func TestAScheduleInJSONIsAListOfTexts(t *testing.T) {
	s := random(7)
	text, err := json.Marshal(s)
	require.NoError(t, err)
	var back fault.Schedule
	require.NoError(t, json.Unmarshal(text, &back))
	assert.Equal(t, s, back)
	require.ErrorContains(t, json.Unmarshal([]byte(`["1s kill(node-1)"]`), &back), `"1s kill(node-1)": kill lasts until it is healed`)
}

func TestAScheduleNamesNodesAndClientsOfItsRun(t *testing.T) {
	s, err := fault.ParseSchedule("1s flushall(node-2)\n2s client-clock(client-3,+1s) for 1s")
	require.NoError(t, err)
	require.NoError(t, s.Check([]string{"node-1", "node-2"}, 3))
	require.EqualError(t, s.Check([]string{"node-1"}, 3), `fault 1, 1s flushall(node-2): there is no "node-2"; there are node-1`)
	require.ErrorContains(t, s.Check([]string{"node-1", "node-2"}, 2), "only 2 clients")
}

func TestFaultsThatWouldEndEachOtherAreRefused(t *testing.T) {
	nodes := []string{"node-1", "node-2"}
	for text, refused := range map[string]bool{
		"0s cut(node-1) for 2s\n100ms cut-replies(node-1) for 200ms":                   true,
		"100ms cut-replies(node-1) for 200ms\n0s cut(node-1) for 2s":                   true,
		"0s cut(node-1) for 2s\n100ms cut(node-1) for 2s":                              true,
		"0s kill(node-1) for 2s\n1s pause(node-1) for 2s":                              true,
		"0s delay(node-1,client-1,1ms) for 2s\n1s delay(node-1,client-1,2ms) for 2s":   true,
		"0s client-clock(client-1,1m) for 2s\n1s client-clock(client-1,-1m) for 500ms": true,
		"0s cut(node-1) for 2s\n1s cut(node-2) for 2s":                                 false,
		"0s cut(node-1) for 2s\n1s cut(node-1,client-1) for 2s":                        false,
		"0s cut(node-1) for 2s\n1s delay(node-1,1ms) for 2s":                           false,
		"0s unsubscribe(node-1) for 2s\n1s pause(node-1) for 500ms":                    false,
		"1s cut(node-1) for 1s\n0s cut(node-1) for 1s":                                 false,
		"0s kill(node-1) for 2s\n1s flushall(node-1)":                                  false,
	} {
		s, err := fault.ParseSchedule(text)
		require.NoError(t, err)
		if err = s.Check(nodes, 1); refused {
			assert.ErrorContains(t, err, "it overlaps", text)
		} else {
			assert.NoError(t, err, text)
		}
	}
}

func TestAFaultThatIsWrongInItselfIsRefusedInASchedule(t *testing.T) {
	nodes := []string{"node-1"}
	require.ErrorContains(t, fault.Schedule{{}}.Check(nodes, 1), `fault 1, 0s (): there is no ""; there are`)
	require.ErrorContains(t, fault.Schedule{{Fault: fault.On(fault.Kill, "node-1")}}.Check(nodes, 1), "say for how long")
	require.ErrorContains(t, fault.Schedule{{Fault: fault.On(fault.Kill, ""), Lasts: 1}}.Check(nodes, 1), "names a node")
}

func TestATimedFaultMayHaveSpacesAsAFault(t *testing.T) {
	for _, text := range []string{"1s cut(node-1, client-2) for 2s", "1s  cut ( node-1 , client-2 )  for 2s"} {
		one, err := fault.ParseTimed(text)
		require.NoError(t, err, text)
		assert.Equal(t, "1s cut(node-1,client-2) for 2s", one.String())
	}
}

func TestATimedFaultSaysHowLongExactlyIfItLasts(t *testing.T) {
	for _, text := range []string{"1s kill(node-1)", "1s flushall(node-1) for 2s", "1s flushall(node-1) for 0s", "1s kill(node-1)for 2s", "1s flushall(node-1) 2s", "kill(node-1)", "1s kill(node-1) until 2s", "x kill(node-1) for 1s", "-1s kill(node-1) for 1s"} {
		_, err := fault.ParseTimed(text)
		require.Error(t, err, text)
	}
	s, err := fault.ParseSchedule(strings.Join([]string{"", "1.5s kill(node-1) for 2s", "2s flushall(node-2)", ""}, "\n"))
	require.NoError(t, err)
	require.Len(t, s, 2)
	assert.Equal(t, 2*time.Second, s[0].Lasts)
}
