package main

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTheBillNamesWhatIsLinked(t *testing.T) {
	dir := t.TempDir()
	program, sbom := filepath.Join(dir, "redlock"), filepath.Join(dir, "sbom")
	for out, pkg := range map[string]string{program: "../../cmd/redlock", sbom: "."} {
		said, err := exec.CommandContext(t.Context(), "go", "build", "-o", out, pkg).CombinedOutput()
		require.NoError(t, err, "%s", said)
	}
	text, err := exec.CommandContext(t.Context(), sbom, program, "v1.2.3").Output()
	require.NoError(t, err)
	var d document
	require.NoError(t, json.Unmarshal(text, &d))
	require.Equal(t, "CycloneDX", d.Format)
	require.Equal(t, component{Type: "application", Name: "github.com/quorumlock/redlock", Version: "v1.2.3",
		PURL: "pkg:golang/github.com/quorumlock/redlock@v1.2.3"}, d.Metadata.Component)
	byName := map[string]component{}
	for _, c := range d.Components {
		byName[c.Name] = c
	}
	require.Regexp(t, `^pkg:golang/stdlib@1\.\d+`, byName["stdlib"].PURL)
	redigo := byName["github.com/gomodule/redigo"]
	require.Equal(t, "pkg:golang/github.com/gomodule/redigo@"+redigo.Version, redigo.PURL)
	require.Len(t, redigo.Hashes[0].Content, 64)
	require.NotContains(t, byName, "github.com/stretchr/testify", "only what is linked")

	_, err = exec.CommandContext(t.Context(), sbom, "main.go", "v1.2.3").Output()
	require.Error(t, err)
	_, err = exec.CommandContext(t.Context(), sbom).Output()
	require.Error(t, err)
}
