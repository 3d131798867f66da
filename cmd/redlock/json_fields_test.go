package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/audit"
)

// fieldsOf returns the fields of JSON that a type has, those of lists with [].
func fieldsOf(of reflect.Type, above string) (fields []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		kind, inside := field.Type, above+name+"."
		switch {
		case field.Anonymous:
			fields = append(fields, fieldsOf(kind, above)...)
			continue
		case !field.IsExported():
			continue
		case kind.Kind() == reflect.Slice:
			kind, inside = kind.Elem(), above+name+"[]."
		}
		if kind.Kind() == reflect.Struct && kind != reflect.TypeFor[time.Time]() {
			fields = append(fields, fieldsOf(kind, inside)...)
			continue
		}
		fields = append(fields, above+name)
	}
	return fields
}

// A field of JSON is read by scripts: each is in docs/operations.md, and nothing that no command prints.
func TestEveryFieldOfJSONIsDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n### JSON, field by field\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n### ")
	parts := strings.Split(section, "\n#### ")
	require.Contains(t, parts[0], "\n| `error` |")
	require.Contains(t, parts[0], "\n| `kind` |")
	printed := map[string]reflect.Type{
		"`redlock run`": reflect.TypeFor[runReport](),
		"`redlock inspect` and `redlock release --force`": reflect.TypeFor[releaseReport](),
		"`redlock release --token`":                       reflect.TypeFor[tokenReport](),
		"`redlock doctor` and `redlock enroll`":           reflect.TypeFor[diagnosis](),
		"`redlock top`":                                   reflect.TypeFor[topReport](),
		"`redlock bench`":                                 reflect.TypeFor[benchReport](),
		"`redlock demo`":                                  reflect.TypeFor[verdict](),
		"`redlock audit`":                                 reflect.TypeFor[audit.Result](),
		"`redlock version`":                               reflect.TypeFor[versionReport](),
	}
	for _, part := range parts[1:] {
		title, table, _ := strings.Cut(part, "\n")
		require.Contains(t, printed, title)
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| (`.*?`) \\|").FindAllStringSubmatch(table, -1) {
			for _, name := range strings.Split(row[1], ", ") {
				documented = append(documented, strings.Trim(name, "`"))
			}
		}
		fields := fieldsOf(printed[title], "")
		fields = slices.DeleteFunc(fields, func(name string) bool { return name == "error" || name == "kind" })
		lists := func(name string) bool { return name == "nodes" || name == "sharers" } // their own rows, where there are such
		require.ElementsMatch(t, slices.DeleteFunc(fields, lists), slices.DeleteFunc(documented, lists), title)
		delete(printed, title)
	}
	require.Empty(t, printed)
}

// The types above are those that the commands print.
func TestTheCommandsPrintTheFieldsOfTheirReports(t *testing.T) {
	t.Parallel()
	for line, report := range map[string]any{
		"run --nodes embedded k -- no-such-command-anywhere":                  &runReport{},
		"inspect --nodes embedded k":                                          &lockReport{},
		"release --force --nodes embedded k":                                  &releaseReport{},
		"release --token 0123456789abcdef0123456789abcdef --nodes embedded k": &tokenReport{},
		"doctor --nodes embedded":                                             &diagnosis{},
		"enroll --nodes embedded":                                             &diagnosis{},
		"enroll --nodes 127.0.0.1:1":                                          &diagnosis{}, // it fails
		"top --nodes embedded --count 1 k":                                    &topReport{},
		"bench --nodes embedded --node-timeout 3s --seconds 0.01":             &benchReport{},
		"demo --seconds 1":                                                    &verdict{},
		"audit ../../examples/audit/web-1.jsonl":                              &audit.Result{},
		"version":                                                             &versionReport{},
	} {
		command, rest, _ := strings.Cut(line, " ")
		var out, errs bytes.Buffer
		code := execute(t.Context(), append([]string{command, "--json"}, strings.Fields(rest)...), &out, &errs)
		if command == "run" {
			out = errs
		}
		reader := json.NewDecoder(&out)
		reader.DisallowUnknownFields()
		require.NoError(t, reader.Decode(report), "%s: %d %s", line, code, errs.String())
		require.False(t, reflect.ValueOf(report).Elem().IsZero())
	}
}

func TestAFailedCheckOfTheDemoIsNamedBesideTheJSON(t *testing.T) {
	t.Parallel()
	result := verdict{Checks: []check{{"lost updates", false, "3"}, {"hand-overs", true, "9"}, {"stale write", false, "not tried"}}}
	var said bytes.Buffer
	err := (&demoOptions{json: true}).ending(t.Context(), result, &said)
	require.Equal(t, &exitError{exitFailed, nil}, err)
	require.Equal(t, "redlock: a check failed: lost updates: 3; stale write: not tried\n", said.String())
	said.Reset()
	require.Error(t, (&demoOptions{}).ending(t.Context(), result, &said))
	require.Empty(t, said.String(), "the table has it")
	result.OK = true
	require.NoError(t, (&demoOptions{json: true}).ending(t.Context(), result, &said))
}

func TestTimesOfARunHaveNoNanoseconds(t *testing.T) {
	t.Parallel()
	require.Equal(t, 1.235, inSeconds(1234567890))
}
