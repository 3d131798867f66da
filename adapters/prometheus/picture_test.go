package redlockprom_test

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"text/template"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorumlock/redlock/internal/required"
	"github.com/quorumlock/redlock/internal/sleep"
)

var picture = flag.String("picture", "", "TestEveryPanelShowsWhatHappens draws the dashboard into this file: see make dashboard")

// pages is a directory of templates that Prometheus serves.
type pages struct{ dir, url string }

// panelsPage has the dashboard's panels on its grid. Prometheus's own console library asks the queries and draws them.
// Grafana draws them differently; what is seen here are titles, legends, units and curves.
var panelsPage = template.Must(template.New("").Delims("<%", "%>").Funcs(template.FuncMap{
	"fill": fill.Replace,
	"name": strings.NewReplacer("{{", "[[ ", "}}", " ]]").Replace,
	"inc":  func(n int) int { return n + 1 },
}).Parse(`<!doctype html>
<link rel="stylesheet" href="/classic/static/rickshaw/rickshaw.min.css">
<link rel="stylesheet" href="/classic/static/css/prom_console.css">
<script src="/classic/static/d3/d3.min.js"></script>
<script src="/classic/static/vendor/rickshaw/vendor/d3.layout.min.js"></script>
<script src="/classic/static/rickshaw/rickshaw.min.js"></script>
<script src="/classic/static/jquery/jquery.min.js"></script>
<script>var PATH_PREFIX = "";</script>
<script src="/classic/static/js/prom_console.js"></script>
<style>
body { display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px; font: 14px sans-serif }
section { border: 1px solid #ccc; padding: 4px; overflow: hidden }
h2 { font-size: 16px; margin: 0 }
</style>
<% range .Panels %>
<section style="grid-column: <% inc .GridPos.X %> / span <% .GridPos.W %>">
<h2><% .Title %></h2><div id="panel<% .ID %>"></div>
<script>
new PromConsole.Graph({
	node: document.querySelector("#panel<% .ID %>"), duration: 60, height: 160, yUnits: "<% .FieldConfig.Defaults.Unit %>",
	expr: [<% range .Targets %><% printf "%q" (fill .Expr) %>, <% end %>],
	name: [<% range .Targets %><% printf "%q" (name .LegendFormat) %>, <% end %>],
})
</script>
</section>
<% end %>
`))

// draw waits for a minute of curves, and takes a picture of the panels.
func draw(t *testing.T, d dashboard, p pages, file string) {
	require.NoError(t, sleep.For(t.Context(), time.Minute))
	page, err := os.Create(filepath.Join(p.dir, "panels.html"))
	require.NoError(t, err)
	require.NoError(t, panelsPage.Execute(page, d))
	require.NoError(t, page.Close())
	out, err := exec.CommandContext(t.Context(), required.Chromium(t), "--headless", "--no-sandbox", "--disable-gpu",
		"--hide-scrollbars", "--window-size=1800,1500", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=20000",
		"--screenshot="+file, p.url+"panels.html").CombinedOutput()
	require.NoError(t, err, "%s", out)
	t.Logf("the panels are drawn in %s", file)
}
