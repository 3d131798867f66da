package redlockprom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	redlockprom "github.com/quorumlock/redlock/adapters/prometheus"
	"github.com/quorumlock/redlock/internal/required"
	"github.com/quorumlock/redlock/redlocktest"
)

const (
	dashboardFile = "../../deploy/grafana/redlock.json"
	rulesFile     = "../../deploy/prometheus/redlock.rules.yml"
	rulesTestFile = "../../deploy/prometheus/redlock.rules_test.yml"
)

type dashboard struct {
	Panels []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Targets                  []struct{ Expr string }
	}
	Templating struct {
		List []struct{ Name, Definition string }
	}
	Annotations struct {
		List []struct{ Expr string }
	}
}

func readDashboard(t *testing.T) (d dashboard, text string) {
	raw, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(raw, &d))
	return d, string(raw)
}

// expressions are the dashboard's, with its variables filled in as Grafana does.
func (d *dashboard) expressions() (panels, all []string) {
	fill := strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			panels = append(panels, fill.Replace(target.Expr))
		}
	}
	all = slices.Clone(panels)
	for _, a := range d.Annotations.List {
		all = append(all, fill.Replace(a.Expr))
	}
	return panels, all
}

// working is a registry of a client that holds a lock.
func working(t *testing.T) *prometheus.Registry {
	nodes := redlocktest.Start(t, 3)
	metrics := redlockprom.New()
	c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), Hooks: metrics.Hooks(redlock.Hooks{})})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	require.NoError(t, c.Enroll(t.Context()))
	lease, err := c.Mutex("x").Acquire(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	metrics.Watch(c)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	return registry
}

// The dashboard and the alert rules name the metrics that exist, and the dashboard shows all of them.
func TestTheDashboardAndTheRulesFitTheMetrics(t *testing.T) {
	families, err := working(t).Gather()
	require.NoError(t, err)
	exist := map[string]string{} // each name that a query may use: its family
	for _, f := range families {
		exist[f.GetName()] = f.GetName()
		if f.GetType().String() == "HISTOGRAM" {
			delete(exist, f.GetName())
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				exist[f.GetName()+suffix] = f.GetName()
			}
		}
	}
	d, text := readDashboard(t)
	rules, err := os.ReadFile(rulesFile)
	require.NoError(t, err)
	name := regexp.MustCompile(`redlock_[a-z_]+`)
	shown := map[string]bool{}
	for _, used := range name.FindAllString(text, -1) {
		require.Contains(t, exist, used, "the dashboard uses a metric that does not exist")
		shown[exist[used]] = true
	}
	for _, used := range name.FindAllString(string(rules), -1) {
		require.Contains(t, exist, used, "a rule uses a metric that does not exist")
	}
	for _, f := range families {
		require.True(t, shown[f.GetName()], "the dashboard does not show %s", f.GetName())
	}
	tests, err := os.ReadFile(rulesTestFile)
	require.NoError(t, err)
	alerts := regexp.MustCompile(`alert: (\w+)`).FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, alerts)
	doc, err := os.ReadFile("../../docs/monitoring.md")
	require.NoError(t, err)
	for _, alert := range alerts {
		require.Contains(t, string(tests), alert[1], "no test has this alert fire")
		require.Contains(t, string(doc), "`"+alert[1]+"`", "docs/monitoring.md does not say what to do")
	}

	ids := map[int]bool{}
	for i, p := range d.Panels {
		require.False(t, ids[p.ID], p.Title)
		ids[p.ID] = true
		require.NotEmpty(t, p.Targets, p.Title)
		require.LessOrEqual(t, p.GridPos.X+p.GridPos.W, 24, p.Title)
		for _, q := range d.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			apart := a.X+a.W <= b.X || b.X+b.W <= a.X || a.Y+a.H <= b.Y || b.Y+b.H <= a.Y
			require.True(t, apart, "%q and %q overlap", p.Title, q.Title)
		}
	}
	for _, v := range regexp.MustCompile(`\$\{?([a-z]+)`).FindAllStringSubmatch(text, -1) {
		found := slices.ContainsFunc(d.Templating.List, func(l struct{ Name, Definition string }) bool { return l.Name == v[1] })
		require.True(t, found, "the dashboard has no variable %s", v[1])
	}
}

// program finds one of Prometheus's programs.
func program(t *testing.T, name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		required.Missing(t, "prometheus", fmt.Errorf("no %s: %w (Debian: apt-get install prometheus)", name, err))
	}
	return path
}

func TestPromtoolAcceptsTheRulesAndEveryQuery(t *testing.T) {
	promtool := program(t, "promtool")
	run := func(args ...string) {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	run("check", "rules", rulesFile)
	run("test", "rules", rulesTestFile)
	d, _ := readDashboard(t)
	_, all := d.expressions()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	var rules []rule
	for i, expr := range all {
		rules = append(rules, rule{fmt.Sprintf("panel:%d", i), expr})
	}
	text, err := json.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "dashboard.yml") // JSON is YAML
	require.NoError(t, os.WriteFile(file, text, 0o600))
	run("check", "rules", file)
}

// A real Prometheus scrapes a real client, loads the rules, and answers every query of the dashboard.
func TestPrometheusAnswersEveryQuery(t *testing.T) {
	server := httptest.NewServer(promhttp.HandlerFor(working(t), promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	ask := startPrometheus(t, strings.TrimPrefix(server.URL, "http://"))
	d, _ := readDashboard(t)
	panels, all := d.expressions()
	for _, expr := range all {
		require.Eventually(t, func() bool {
			var reply struct {
				Status, Error string
				Data          struct{ Result []json.RawMessage }
			}
			if ask("query?query="+url.QueryEscape(expr), &reply) != nil {
				return false
			}
			if reply.Status != "success" {
				t.Errorf("%s: %s", expr, reply.Error)
				return true
			}
			return len(reply.Data.Result) > 0 || !slices.Contains(panels, expr) // an annotation may have nothing to say
		}, 60*time.Second, 100*time.Millisecond, "no answer to %s", expr)
	}
	require.Eventually(t, func() bool {
		var reply struct {
			Data struct {
				Groups []struct {
					Rules []struct{ Name, Health, State, LastError string }
				}
			}
		}
		if ask("rules", &reply) != nil || len(reply.Data.Groups) != 1 {
			return false
		}
		for _, r := range reply.Data.Groups[0].Rules {
			if r.Health != "ok" {
				return false
			}
			if r.State != "inactive" {
				t.Errorf("%s is %s, and all is well", r.Name, r.State)
			}
		}
		return true
	}, 60*time.Second, 100*time.Millisecond)
}

// startPrometheus returns a function that asks its API.
func startPrometheus(t *testing.T, target string) (ask func(path string, reply any) error) {
	binary, dir := program(t, "prometheus"), t.TempDir()
	rules, err := filepath.Abs(rulesFile)
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: app, scrape_timeout: 200ms, static_configs: [{targets: [%q]}]}]\n", rules, target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := l.Addr().String()
	require.NoError(t, l.Close())
	var out bytes.Buffer
	cmd := exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at)
	cmd.Stdout, cmd.Stderr = &out, &out
	require.NoError(t, cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		<-ended
	})
	ask = func(path string, reply any) error {
		response, err := http.Get("http://" + at + "/api/v1/" + path)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		return json.NewDecoder(response.Body).Decode(reply)
	}
	require.Eventually(t, func() bool {
		select {
		case err := <-ended:
			ended <- err
			t.Errorf("Prometheus ended: %v\n%s", err, out.String())
			return true
		default:
		}
		return ask("status/runtimeinfo", &struct{}{}) == nil
	}, 60*time.Second, 50*time.Millisecond)
	if t.Failed() {
		t.FailNow()
	}
	return ask
}
