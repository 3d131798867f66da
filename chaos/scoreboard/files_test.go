package scoreboard

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestALinkStaysALink(t *testing.T) {
	dir := t.TempDir()
	target, link, dangling := filepath.Join(dir, "target"), filepath.Join(dir, "link"), filepath.Join(dir, "dangling")
	require.NoError(t, os.WriteFile(target, nil, 0o600))
	require.NoError(t, os.Symlink(target, link))
	require.NoError(t, os.Symlink(filepath.Join(dir, "new"), dangling))
	for _, path := range []string{link, dangling} {
		require.NoError(t, replace(path, []byte("text")))
		info, err := os.Lstat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeSymlink, info.Mode().Type(), path)
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Equal(t, "text", string(text))
	}
}

func TestTwoThatWriteOneFileWriteWholeFiles(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "board.json")
	b := &Board{Settings: Settings{Seeds: 1}}
	for range 50 {
		b.Cells = append(b.Cells, Cell{Scenario: "control", Subject: "a", Runs: []Run{{Seed: 1, Why: strings.Repeat("x", 500)}}})
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 100 {
				if !assert.NoError(t, b.Write(file)) {
					return
				}
				data, err := os.ReadFile(file)
				if !assert.NoError(t, err) || !assert.True(t, json.Valid(data)) {
					return
				}
			}
		})
	}
	wg.Wait()
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "no temporary file is left")
}
