//go:build unix

package subject

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/fleet"
	"github.com/quorumlock/redlock/internal/fleet/fleettest"
	"github.com/quorumlock/redlock/internal/required"
)

// A schema is the part of JSON Schema that command.schema.json uses.
type schema struct {
	Schema      string            `json:"$schema"`
	Title       string            `json:"title"`
	Description string            `json:"description"`
	Defs        map[string]schema `json:"$defs"`
	Ref         string            `json:"$ref"`
	OneOf       []schema          `json:"oneOf"`
	Type        string            `json:"type"`
	Const       any               `json:"const"`
	Enum        []any             `json:"enum"`
	Minimum     float64           `json:"minimum"`
	MinLength   int               `json:"minLength"`
	Properties  map[string]schema `json:"properties"`
	Required    []string          `json:"required"`
	Additional  *bool             `json:"additionalProperties"`
}

// allows reports whether the value is as the schema says.
func (s *schema) allows(root *schema, value any) bool {
	if s.Ref != "" {
		of := root.Defs[strings.TrimPrefix(s.Ref, "#/$defs/")]
		return of.allows(root, value)
	}
	matches := 0
	for i := range s.OneOf {
		if s.OneOf[i].allows(root, value) {
			matches++
		}
	}
	if len(s.OneOf) > 0 && matches != 1 || s.Const != nil && s.Const != value || s.Enum != nil && !slices.Contains(s.Enum, value) {
		return false
	}
	object, isObject := value.(map[string]any)
	text, isText := value.(string)
	number, isNumber := value.(float64)
	_, isBool := value.(bool)
	is := map[string]bool{
		"": true, "object": isObject, "boolean": isBool, "string": isText && len(text) >= s.MinLength,
		"integer": isNumber && number == float64(int64(number)) && number >= s.Minimum,
	}
	if !is[s.Type] {
		return false
	}
	for _, name := range s.Required {
		if _, has := object[name]; !has {
			return false
		}
	}
	for name, value := range object {
		if of, known := s.Properties[name]; known && !of.allows(root, value) || !known && s.Additional != nil && !*s.Additional {
			return false
		}
	}
	return true
}

func readSchema(t *testing.T) *schema {
	file, err := os.Open("command.schema.json")
	require.NoError(t, err)
	defer file.Close()
	s := &schema{}
	decoder := json.NewDecoder(file)
	decoder.DisallowUnknownFields() // a word that allows does not know
	require.NoError(t, decoder.Decode(s))
	return s
}

func (s *schema) allowsLine(t *testing.T, def, line string) bool {
	var value any
	require.NoError(t, json.Unmarshal([]byte(line), &value), line)
	return s.allows(s, value) && (&schema{Ref: "#/$defs/" + def}).allows(s, value)
}

// The op of a reply is that of its request, so the schema allows a reply if it answers one op at least.
func TestTheSchemaAllowsWhatTheHarnessUnderstands(t *testing.T) {
	s := readSchema(t)
	for line, right := range map[string]bool{
		`{"id":1,"ok":true,"lease":"a"}`:                       true,
		`{"id":1,"ok":true,"lease":"a","fence":7,"token":"t"}`: true,
		`{"id":1,"ok":true,"lease":"a","fence":0,"token":""}`:  true,
		`{"id":1,"ok":true}`:                                   true,
		`{"id":1,"ok":false}`:                                  true,
		`{"id":1,"refused":true}`:                              true,
		`{"id":1,"error":"no quorum"}`:                         true,
		`{"lost":"a"}`:                                         true,
		`{"id":1}`:                                             false,
		`{"id":1,"refused":false}`:                             false,
		`{"id":1,"error":""}`:                                  false,
		`{"id":"1","ok":true}`:                                 false,
		`{"id":1.5,"ok":true}`:                                 false,
		`{"id":-1,"ok":true}`:                                  false,
		`{"id":1,"ok":"yes"}`:                                  false,
		`{"id":1,"ok":true,"refused":true}`:                    false,
		`{"id":1,"ok":true,"error":"no"}`:                      false,
		`{"id":1,"ok":true,"lease":7}`:                         false,
		`{"id":1,"ok":true,"lease":"a","fence":-1}`:            false,
		`{"id":1,"ok":true,"lease":"a","fence":"7"}`:           false,
		`{"id":1,"ok":true,"lease":"a","fencing":7}`:           false,
		`{"id":1,"lost":"a"}`:                                  false,
		`{"lost":7}`:                                           false,
		`["id"]`:                                               false,
		`"id"`:                                                 false,
	} {
		m, err := parseMessage([]byte(line))
		understood := err == nil && (m.Lost != "" || m.answers("acquire") == nil || m.answers("valid") == nil)
		require.Equal(t, right, understood, line)
		def := "reply"
		if strings.HasPrefix(line, `{"lost"`) {
			def = "lost"
		}
		require.Equal(t, right, s.allowsLine(t, def, line), line)
	}
}

// The lock in Python says and gets what the schema allows, and nothing of it is missing in that conversation but lost.
func TestTheSchemaIsThatOfARealConversation(t *testing.T) {
	python := required.Python(t)
	f := fleettest.Start(t, fleet.Embedded, fleet.Options{Nodes: 3})
	heard, told := filepath.Join(t.TempDir(), "heard"), filepath.Join(t.TempDir(), "told")
	line := fmt.Sprintf("tee '%s' | %s ../../examples/chaos-python/lock.py | tee '%s'", heard, python, told)
	ttl := 10 * time.Second
	client, err := Command{Line: line, Stderr: t.Output()}.Open(t.Context(), Options{Client: 1, URLs: f.URLs(), TTL: ttl})
	require.NoError(t, err)
	lease, err := client.Acquire(t.Context(), "k")
	require.NoError(t, err)
	for _, n := range f.Nodes() {
		require.Equal(t, lease.Token(), string(fleettest.Tell(t, n, "GET", "k").([]byte)))
	}
	require.True(t, lease.Valid())
	for _, n := range f.Nodes()[:2] {
		fleettest.Tell(t, n, "SET", "held", "by another")
		fleettest.Tell(t, n, "DEL", "k")
	}
	require.Equal(t, errNotOurs, lease.Release(t.Context()))
	require.False(t, lease.Valid())
	_, err = acquireFor(t, client, "held", 300*time.Millisecond)
	require.ErrorIs(t, err, ErrRefused)
	require.NoError(t, f.Close())
	_, err = acquireFor(t, client, "k", 300*time.Millisecond)
	require.ErrorContains(t, err, "no quorum")
	require.NoError(t, client.Close())

	s, kinds := readSchema(t), map[string]int{}
	for def, path := range map[string]string{"request": heard, "reply": told} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(text)) {
			require.True(t, s.allowsLine(t, def, line), line)
			for i := range s.Defs[def].OneOf {
				var value any
				require.NoError(t, json.Unmarshal([]byte(line), &value))
				if s.Defs[def].OneOf[i].allows(s, value) {
					kinds[fmt.Sprint(def, i)]++
				}
			}
		}
	}
	require.Len(t, kinds, 6, "every kind of line: %v", kinds)
}

func acquireFor(t *testing.T, c Client, name string, patience time.Duration) (Lease, error) {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return c.Acquire(ctx, name)
}
