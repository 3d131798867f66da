package main_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/quorumlock/redlock/chaos/history"
	"github.com/quorumlock/redlock/chaos/scenario"
	"github.com/quorumlock/redlock/chaos/subject"
)

func TestTheDocumentHasEveryScenarioWithItsFleetsAndEverySubject(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile("../../docs/failover.md")
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	if all := fmt.Sprintf("\nThere are %d. ", len(scenario.All())); !strings.Contains(text, all) {
		t.Errorf("it does not say %q", all)
	}
	for _, s := range scenario.All() {
		var fleets []string
		for _, kind := range s.Fleets() {
			fleets = append(fleets, string(kind)[:1])
		}
		row := regexp.MustCompile("(?m)^\\| `" + s.Name + "` \\|.*\\| " + strings.Join(fleets, " ") + " \\|$")
		if !row.MatchString(text) {
			t.Errorf("no row %s", row)
		}
		for _, subject := range append(s.Fails, "redlock") {
			if row := fmt.Sprintf("\n| %s | %s | ", s.Name, subject); !isOfKind(subject) && !strings.Contains(text, row) {
				t.Errorf("nothing was measured: %q", row)
			}
		}
	}
	for _, s := range subject.All() {
		if !strings.Contains(text, "\n| `"+s.Name()+"` | ") {
			t.Errorf("no row for the subject %s", s.Name())
		}
	}
}

// isOfKind reports whether the subject is no mutex: those were measured in another way.
func isOfKind(name string) bool {
	s, err := subject.ByName(name)
	return err == nil && subject.KindOf(s).Lock != history.Mutex
}
