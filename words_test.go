package redlock_test

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"regexp/syntax"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/stretchr/testify/require"
)

// A retired word is one that the documents, comments and messages of this project no longer use.
type retired struct {
	pattern string // of whole words, in any case; a space is any white space, also the end of a line
	instead string // what to say
	sample  string // a sentence that has it
	names   bool   // it is refused in the names of the code too
}

var retiredWords = []retired{
	// One word for one thing.
	{`ears?`, "waiter", "The ear hears of releases.", true},
	{`(who|whoever) waits?`, "waiter", "It goes to the next\nwho waits.", false},
	{`ghosts?`, "stale connection; or late write", "Ghosts are killed on the server.", true},
	{`confine[sd]?`, "in quarantine", "The node is confined.", true},
	{`standing`, "readiness", "Its standing belongs to one connection.", true},
	{`facts`, "server info", "The facts of a server.", true},
	{`favou?r(s|ed|ing)?`, "reserved; or handed over within the process", "The release favours its own process.", true},
	{`kept for (a|an|the|this|that|another|others|it|its|who|whoever|whom|somebody|someone|one|us|them|me|waiters)`,
		"reserved for", "The key is kept for the next waiter.", false},
	{`what is kept`, "a reservation", "What is kept for a client is no vote.", false},
	{`kept in vain`, "an unused reservation", "What is kept in vain is passed on.", false},
	{`fences`, "fencing tokens", "Fences grow.", false},
	{`(a|an|the|this|that|its|no|each|every|whose|larger|largest|smaller|smallest|highest) fence` +
		`( (is|was|of|that|which|and|or|for|to|from|by|in|with|than|grows)|[.,;:)])`,
		"fencing token", "A resource compares the fence, and is safe.", false},

	// Phrases.
	{`prospects?`, "what a refusal says about the next round", "The prospect of a round.", true},
	{`of which (each|any) two`, "any two of them", "The largest set of which each two agree.", false},
	{`stands? (one|two|three|\d+|a) (failures?|faults?)`, "tolerate", "Five servers stand two failures.", false},
	{`can stand`, "tolerate", "As many nodes as you can stand.", false},
	{`(err)?unheeded`, "not counted", "It fails with errUnheeded.", true},
	{`must not (happen|be done) twice`, "two processes must not do it at the same time", "It guards what must not happen twice.", false},
	{`any single one excepted`, "at most one may be wrong", "The clocks agree, any single one excepted.", false},
	{`people who guard`, "say it of the work: work that two processes must not do at the same time", "It is for people who guard payments.", false},
	{`ahead of everybody`, "could reacquire first", "The releaser was ahead of everybody.", false},
	{`owed releases go first`, "then sends the releases that were never confirmed", "Owed releases go first.", false},
	{`nobody can reach (it )?any more`, "garbage-collected", "One that nobody can reach any more stops.", false},
	{`believed validity`, "overlapping leases", "No overlap of believed validity.", false},

	// Words in a sense that they no longer have.
	{`(may|might|can|could|must) yet`, "still", "A node that may yet grant.", false},
	{`how (long|much longer) yet`, "how much longer", "It says how long yet.", false},
	{`(is|was|were|are|be|been|being) had`, "acquired, held", "The lock is had by one client.", false},
}

var retiredPatterns = func() (compiled []*regexp.Regexp) {
	for _, word := range retiredWords {
		spaced := strings.ReplaceAll(word.pattern, " ", `\s+`)
		end := `\b`
		if strings.HasSuffix(word.pattern, "])") { // it ends with a mark
			end = ""
		}
		compiled = append(compiled, regexp.MustCompile(`(?i)\b(?:`+spaced+`)`+end))
	}
	return compiled
}()

// retiredKeys has, for each pattern, what every match of it contains, in lower case. To look for that first is cheap;
// with the race detector, patterns are slow.
var retiredKeys = func() (keys []string) {
	for _, pattern := range retiredPatterns {
		parsed, err := syntax.Parse(pattern.String(), syntax.Perl)
		if err != nil {
			panic(err)
		}
		keys = append(keys, strings.ToLower(longestLiteral(parsed)))
	}
	return keys
}()

// longestLiteral returns the longest text that every match of the pattern contains.
func longestLiteral(pattern *syntax.Regexp) (longest string) {
	switch pattern.Op {
	case syntax.OpLiteral:
		return string(pattern.Rune)
	case syntax.OpConcat, syntax.OpCapture:
		for _, part := range pattern.Sub {
			if text := longestLiteral(part); len(text) > len(longest) {
				longest = text
			}
		}
	}
	return longest
}

func TestNoRetiredWordIsUsed(t *testing.T) {
	var report, counts []string
	require.NoError(t, filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && notOurs(entry.Name()):
			return fs.SkipDir
		case entry.IsDir() || !hasWords(path):
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		passages, err := passagesOf(path, string(source))
		found := retiredIn(path, passages)
		if report = append(report, found...); len(found) > 0 {
			counts = append(counts, fmt.Sprintf("%4d %s", len(found), filepath.ToSlash(path)))
		}
		return err
	}))
	if len(report) > 0 {
		t.Errorf("words that this project no longer uses:\n%s\n\n%d in %d files:\n%s",
			strings.Join(report, "\n"), len(report), len(counts), strings.Join(counts, "\n"))
	}
}

func TestEachRetiredWordIsFound(t *testing.T) {
	for i, word := range retiredWords {
		require.Regexp(t, retiredPatterns[i], word.sample)
		require.Greater(t, len(retiredKeys[i]), 2, "%s: no text that all matches have; all texts would be searched", word.pattern)
		for _, path := range []string{"a.md", "a.lua", "a.go"} {
			text := word.sample
			if path != "a.md" {
				mark := map[string]string{"a.lua": "-- ", "a.go": "// "}[path]
				text = "\n" + mark + strings.ReplaceAll(text, "\n", "\n"+mark) + "\n"
			}
			if path == "a.go" {
				text = "package a\n" + text
			}
			passages, err := passagesOf(path, text)
			require.NoError(t, err)
			found := strings.Join(retiredIn(path, passages), "\n")
			require.Contains(t, found, word.instead, "%s: %s", path, word.sample)
		}
	}
}

func TestARetiredWordIsReportedWithItsPlace(t *testing.T) {
	source := "package a\n\n// Fine.\n// Who\n// waits here.\ntype ghostList struct{}\n\n" +
		"var errUnheeded = errors.New(\"the standing\\nof it\")\n\n" +
		"const text = `first\nthe facts of it`\nconst word = \"ghost\"\n"
	passages, err := passagesOf("x/a.go", source)
	require.NoError(t, err)
	require.Equal(t, []string{
		`x/a.go:4: "Who waits": waiter`,
		`x/a.go:6: "ghost" in the name ghostList: stale connection; or late write`,
		`x/a.go:8: "Unheeded" in the name errUnheeded: not counted`,
		`x/a.go:8: "standing": readiness`,
		`x/a.go:11: "facts": server info`,
	}, retiredIn("x/a.go", passages))

	passages, err = passagesOf("a_test.go", source)
	require.NoError(t, err)
	require.Len(t, retiredIn("a_test.go", passages), 3, "of a test the comments and the names")
}

func TestInnocentWordsAreNotFound(t *testing.T) {
	const innocent = "We hear early of an outstanding year; nearly clear. A long fact-free matter-of-course is artefacts. " +
		"The lock had a fence around it, and `redlock:fence` has fence slots. It is kept for ever, and must not yet run. " +
		"He who awaits it is a bystander, understanding prospectively. Who waited? Lease.Fence(). This must not run twice. " +
		"A colourful, flavoured, refined folktold ghostly stand-in can withstand two of them."
	for _, path := range []string{"a.md", "a.svg"} {
		passages, err := passagesOf(path, innocent)
		require.NoError(t, err)
		require.Empty(t, retiredIn(path, passages))
	}
	passages, err := passagesOf("a.lua", "local ear = 1 -- early\n-- heard\nreturn 'who waits'\n")
	require.NoError(t, err)
	require.Empty(t, retiredIn("a.lua", passages), "of a script only the comments")
}

// A passage is text that a person reads.
type passage struct {
	line int    // of its beginning
	text string // with its line ends
	name string // the name in the code that it was made of, or ""
}

// hasWords reports whether the file is one of those whose words are checked.
func hasWords(path string) bool {
	switch filepath.Ext(path) {
	case ".md", ".svg", ".lua", ".go":
		return true
	}
	return false
}

func passagesOf(path, source string) ([]passage, error) {
	switch filepath.Ext(path) {
	case ".go":
		return goPassages(path, source)
	case ".lua":
		return luaPassages(source), nil
	default:
		return []passage{{1, source, ""}}, nil
	}
}

// luaPassages returns the comments. Comments on consecutive lines are one passage.
func luaPassages(source string) (passages []passage) {
	last := 0
	for i, line := range strings.Split(source, "\n") {
		_, comment, found := strings.Cut(line, "--")
		switch {
		case !found:
			continue
		case i > 0 && last == i:
			passages[len(passages)-1].text += "\n" + comment
		default:
			passages = append(passages, passage{i + 1, comment, ""})
		}
		last = i + 1
	}
	return passages
}

// goPassages returns the comments, the names and, except in tests, the messages: strings with a space in them.
func goPassages(path, source string) (passages []passage, err error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, source, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, group := range file.Comments {
		var lines []string
		for _, comment := range group.List {
			lines = append(lines, strings.TrimPrefix(comment.Text, "//"))
		}
		passages = append(passages, passage{set.Position(group.Pos()).Line, strings.Join(lines, "\n"), ""})
	}
	isTest := strings.HasSuffix(path, "_test.go")
	escapes := strings.NewReplacer(`\n`, "  ", `\t`, "  ")
	names := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.ImportSpec:
			return false
		case *ast.Ident:
			if !names[n.Name] {
				names[n.Name] = true
				passages = append(passages, passage{set.Position(n.Pos()).Line, wordsOf(n.Name), n.Name})
			}
		case *ast.BasicLit:
			if n.Kind == token.STRING && !isTest && strings.Contains(n.Value, " ") {
				passages = append(passages, passage{set.Position(n.Pos()).Line, escapes.Replace(n.Value), ""})
			}
		}
		return true
	})
	return passages, nil
}

// wordsOf splits a name: "roundTrip" is "round Trip".
func wordsOf(name string) string {
	var b strings.Builder
	before := ' '
	for _, r := range name {
		if unicode.IsUpper(r) && unicode.IsLower(before) {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
		before = r
	}
	return b.String()
}

// retiredIn returns a line for each retired word: where it is, and what to say instead.
func retiredIn(path string, passages []passage) (report []string) {
	type finding struct {
		line int
		text string
	}
	var found []finding
	for _, p := range passages {
		lower := strings.ToLower(p.text)
		for i, pattern := range retiredPatterns {
			if p.name != "" && !retiredWords[i].names || !strings.Contains(lower, retiredKeys[i]) {
				continue
			}
			for _, at := range pattern.FindAllStringIndex(p.text, -1) {
				line := p.line + strings.Count(p.text[:at[0]], "\n")
				text := fmt.Sprintf("%q", strings.Join(strings.Fields(p.text[at[0]:at[1]]), " "))
				if p.name != "" {
					text += " in the name " + p.name
				}
				found = append(found, finding{line, text + ": " + retiredWords[i].instead})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b finding) int { return cmp.Compare(a.line, b.line) })
	for _, f := range found {
		report = append(report, fmt.Sprintf("%s:%d: %s", filepath.ToSlash(path), f.line, f.text))
	}
	return report
}
