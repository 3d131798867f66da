// Package scoreboard runs subjects in scenarios, with several seeds each, and puts what came of it into one table: a row for
// each scenario, a column for each subject. All subjects are judged alike, and what did not run is said.
package scoreboard
