package redlockprom_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock"
	redlockprom "github.com/quorumlock/redlock/adapters/prometheus"
	"github.com/quorumlock/redlock/internal/fleet/server"
	"github.com/quorumlock/redlock/internal/required"
	"github.com/quorumlock/redlock/internal/sleep"
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
		Targets                  []struct{ Expr, LegendFormat string }
		FieldConfig              struct {
			Defaults struct{ Unit string }
		}
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

// fill fills in the variables of an expression, as Grafana does.
var fill = strings.NewReplacer("$__rate_interval", "5m", "$job", ".*", "$instance", ".*")

// expressions are the dashboard's.
func (d *dashboard) expressions() (panels, all []string) {
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
	c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), NodeTimeout: patience, Hooks: metrics.Hooks(redlock.Hooks{})})
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
	ask, _ := startPrometheus(t, strings.TrimPrefix(server.URL, "http://"))
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

// eventful is a registry of a client whose locks are contended, renewed, refused and lost, until the test ends: now and
// then two of three nodes cannot be reached, and the third is restarted.
func eventful(t *testing.T) *prometheus.Registry {
	nodes, metrics := redlocktest.Start(t, 3), redlockprom.New()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	again := func(do func()) {
		wg.Go(func() {
			for ctx.Err() == nil {
				do()
			}
		})
	}
	c, err := redlock.New(redlock.Config{Nodes: nodes.Nodes(), TTL: 300 * time.Millisecond, MaxTTL: time.Second,
		NodeTimeout: 100 * time.Millisecond, Hooks: metrics.Hooks(redlock.Hooks{})})
	require.NoError(t, err)
	require.NoError(t, c.Enroll(t.Context()))
	metrics.Watch(c)
	hold := func(d time.Duration) func(context.Context, *redlock.Lease) error {
		return func(ctx context.Context, _ *redlock.Lease) error { return sleep.For(ctx, d) }
	}
	for range 2 {
		again(func() { _ = c.Mutex("short").Do(ctx, hold(5*time.Millisecond)) })
	}
	again(func() { _ = c.Mutex("long").Do(ctx, hold(time.Minute)) }) // until it is lost
	again(func() {
		_, _ = c.Mutex("long").TryDo(ctx, hold(time.Millisecond))
		_ = sleep.For(ctx, 20*time.Millisecond)
	})
	again(func() {
		nodes.Partition(1)
		nodes.Partition(2)
		_ = sleep.For(ctx, 600*time.Millisecond)
		nodes.Heal(1)
		nodes.Heal(2)
		_ = sleep.For(ctx, 500*time.Millisecond)
		nodes.Kill(0)
		nodes.Restart(0)
		_ = sleep.For(ctx, 1500*time.Millisecond)
	})
	t.Cleanup(func() {
		cancel()
		wg.Wait()
		require.NoError(t, c.Close())
	})
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(metrics))
	return registry
}

// A panel that shows nothing, or no number, while that happens is drawn wrong.
func TestEveryPanelShowsWhatHappens(t *testing.T) {
	server := httptest.NewServer(promhttp.HandlerFor(eventful(t), promhttp.HandlerOpts{}))
	t.Cleanup(server.Close)
	ask, pages := startPrometheus(t, strings.TrimPrefix(server.URL, "http://"))
	d, _ := readDashboard(t)
	mayBeZero := []string{"Clock offset", "Dropped events"} // one clock, and hooks that are fast
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			var values []float64
			require.Eventually(t, func() bool {
				var reply struct {
					Data struct{ Result []struct{ Value []any } }
				}
				if ask("query?query="+url.QueryEscape(fill.Replace(target.Expr)), &reply) != nil {
					return false
				}
				values = nil
				something := slices.Contains(mayBeZero, p.Title)
				for _, series := range reply.Data.Result {
					v, err := strconv.ParseFloat(series.Value[1].(string), 64)
					if err != nil || math.IsNaN(v) || math.IsInf(v, 0) {
						return false
					}
					values, something = append(values, v), something || v != 0
				}
				return len(values) > 0 && something
			}, 60*time.Second, 50*time.Millisecond, "%s: %s", p.Title, target.Expr)
			for _, v := range values {
				switch p.FieldConfig.Defaults.Unit {
				case "s":
					require.Less(t, math.Abs(v), 100., "%s is in seconds", p.Title)
				case "ops": // of so few callers, each of which waits 1 ms or more
					require.Less(t, v, 10_000., "%s is for each second", p.Title)
				}
			}
		}
	}
	for _, reason := range []string{"held", "no_quorum"} {
		require.Eventually(t, func() bool {
			var reply struct {
				Data struct{ Result []json.RawMessage }
			}
			query := fmt.Sprintf("increase(redlock_refused_total{reason=%q}[5m]) > 0", reason)
			return ask("query?query="+url.QueryEscape(query), &reply) == nil && len(reply.Data.Result) == 1
		}, 60*time.Second, 50*time.Millisecond, reason)
	}
	if *picture != "" {
		draw(t, d, pages, *picture)
	}
}

// startPrometheus returns a function that asks its API, and a directory of pages that it serves under /consoles.
func startPrometheus(t *testing.T, target string) (ask func(path string, reply any) error, served pages) {
	binary, dir := program(t, "prometheus"), t.TempDir()
	rules, err := filepath.Abs(rulesFile)
	require.NoError(t, err)
	config := fmt.Sprintf("global: {scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 200ms}\nrule_files: [%q]\n"+
		"scrape_configs: [{job_name: app, scrape_timeout: 200ms, static_configs: [{targets: [%q]}]}]\n", rules, target)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600))
	port, release, err := server.Reserve()
	require.NoError(t, err)
	t.Cleanup(release)
	at := fmt.Sprint("127.0.0.1:", port)
	var out bytes.Buffer
	cmd := exec.Command(binary, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+at, "--web.console.templates="+dir, "--web.console.libraries="+dir)
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
	return ask, pages{dir: dir, url: "http://" + at + "/consoles/"}
}
