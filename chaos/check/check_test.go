package check

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/stretchr/testify/require"
)

// zeros are the fields that must be 0 unless a .want file says otherwise.
var zeros = []string{
	"overlaps", "fence_duplicates", "fence_inversions", "late_losses", "lost_updates", "stale_writes_refused",
	"stale_writes_accepted", "fenced_lost_updates", "fenced_stale_writes_accepted", "valid_writes_refused",
	"orphans", "orphans_past_ttl",
}

// Each history in testdata is judged as its .want file says. The file has fields of the result, and "kinds": the number
// of violations of each kind. The second line of a history says what it shows.
func TestHistoriesAreJudgedAsTheyShouldBe(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	require.NoError(t, err)
	require.Greater(t, len(files), 20)
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		t.Run(name, func(t *testing.T) {
			f, err := os.Open(file)
			require.NoError(t, err)
			defer f.Close()
			events, err := history.ReadAll(f)
			require.NoError(t, err)
			res, err := Judge(events)
			require.NoError(t, err)
			requireWanted(t, strings.TrimSuffix(file, ".jsonl")+".want", res)
			require.Equal(t, strings.HasPrefix(name, "safe-"), res.Verdict == Safe)
			require.Zero(t, res.Confirmed.Expired+res.Confirmed.TooLong)

			_, err = f.Seek(0, 0)
			require.NoError(t, err)
			again, err := JudgeReader(f)
			require.NoError(t, err)
			require.Equal(t, res, again, "the same, read or handed over")
		})
	}
}

func requireWanted(t *testing.T, file string, res Result) {
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	want := map[string]any{}
	require.NoError(t, json.Unmarshal(data, &want))
	encoded, err := json.Marshal(res)
	require.NoError(t, err)
	got := map[string]any{}
	require.NoError(t, json.Unmarshal(encoded, &got))

	kinds := map[string]any{}
	for _, v := range res.Violations {
		n, _ := kinds[string(v.Kind)].(float64)
		kinds[string(v.Kind)] = n + 1
		t.Log(v.Kind, v.Nodes, v.Text)
	}
	got["kinds"] = kinds
	if want["kinds"] == nil {
		want["kinds"] = map[string]any{}
	}
	for _, field := range zeros {
		if want[field] == nil {
			want[field] = 0.0
		}
	}
	for field, w := range want {
		require.Contains(t, got, field)
		require.Equal(t, w, got[field], field)
	}
}
