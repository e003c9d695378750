{{/*
carryon.yaml. Helm sorts mappings by name, and the order of upstreams has a meaning: they are written in that of
`upstreamOrder`.
*/}}
{{- define "carryon.yaml" -}}
# From `config` of the chart's values. Addresses, state_dir and secrets are set by variables.
{{- with omit .Values.config "upstreams" }}
{{ toYaml . }}
{{- end }}
{{- with .Values.config.upstreams }}
{{- $upstreams := . }}
upstreams:
{{- range default (keys .) $.Values.upstreamOrder }}
  {{- dict . (get $upstreams .) | toYaml | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* Whether there is a store that pods share. */}}
{{- define "carryon.shared" -}}
{{- if or .Values.redis.url .Values.redis.existingSecret .Values.valkey.enabled }}yes{{ end -}}
{{- end }}

{{/* The seconds of `config.timeouts.drain`, rounded up. The schema lets nothing through but a number with its unit. */}}
{{- define "carryon.drainSeconds" -}}
{{- $text := dig "timeouts" "drain" "120s" .Values.config | nospace -}}
{{- $unit := regexFind "[a-z]+$" $text -}}
{{- $number := trimSuffix $unit $text | float64 -}}
{{- mulf $number (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0) $unit) | ceil | int -}}
{{- end }}

{{- define "carryon.graceSeconds" -}}
{{- add .Values.preStopSeconds (include "carryon.drainSeconds" . | int) .Values.graceAfterDrainSeconds -}}
{{- end }}

{{/* Contradictions that the schema cannot see; each refusal says what to do. */}}
{{- define "carryon.check" -}}
{{- $stores := list .Values.redis.url .Values.redis.existingSecret (ternary "valkey" "" .Values.valkey.enabled) | compact -}}
{{- if gt (len $stores) 1 -}}
{{- fail "redis.url, redis.existingSecret and valkey.enabled each name the store: keep one of them" -}}
{{- end -}}
{{- if and (not $stores) (or .Values.autoscaling.enabled (gt (int .Values.replicaCount) 1)) -}}
{{- fail "more than one pod needs a store that they share (without one each pod has its own, lost with the pod): set redis.url or redis.existingSecret, or for trying out valkey.enabled=true; else replicaCount=1 and autoscaling.enabled=false" -}}
{{- end -}}
{{- if and .Values.autoscaling.enabled (lt (int .Values.autoscaling.maxReplicas) (int .Values.autoscaling.minReplicas)) -}}
{{- fail "autoscaling.maxReplicas is below autoscaling.minReplicas: raise it" -}}
{{- end -}}
{{- $autoscaling := .Values.autoscaling -}}
{{- if and $autoscaling.enabled (not (or $autoscaling.targetCPUUtilizationPercentage $autoscaling.targetMemoryUtilizationPercentage $autoscaling.metrics)) -}}
{{- fail "autoscaling has nothing to scale on: set autoscaling.targetCPUUtilizationPercentage or autoscaling.metrics" -}}
{{- end -}}
{{- include "carryon.checkUpstreams" . -}}
{{- include "carryon.checkVariables" . -}}
{{- if and .Values.serviceMonitor.enabled (not (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1")) -}}
{{- fail "serviceMonitor.enabled: this cluster does not know ServiceMonitor. Install the Prometheus Operator, or annotate adminService for your scraper (with helm template: --api-versions monitoring.coreos.com/v1)" -}}
{{- end -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- fail "ingress.hosts is empty: name a host, such as ingress.hosts[0].host=carryon.example.com" -}}
{{- end -}}
{{- end }}

{{- define "carryon.checkUpstreams" -}}
{{- $upstreams := default dict .Values.config.upstreams -}}
{{- $names := keys $upstreams | sortAlpha -}}
{{- if ne (join " " $names) (.Values.upstreamOrder | sortAlpha | join " ") -}}
{{- if or .Values.upstreamOrder (gt (len $names) 1) -}}
{{- fail (printf "upstreamOrder has to name every one of config.upstreams once, the default first: [%s]" (join ", " $names)) -}}
{{- end -}}
{{- end -}}
{{- range $name, $upstream := $upstreams -}}
{{- if and (kindIs "map" $upstream) (get $upstream "api_key") (not $.Values.config.client_keys) -}}
{{- fail (printf "config.upstreams.%s.api_key would be lent to anybody who reaches the Service: list config.client_keys, or remove it, so that clients show their own" $name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Every env:NAME of the configuration is a variable that something sets; a file of variables may hold any. */}}
{{- define "carryon.checkVariables" -}}
{{- $known := keys .Values.secretEnv -}}
{{- range .Values.extraEnv -}}
{{- if has .name $known -}}{{- fail (printf "%s is set twice, by secretEnv or extraEnv: keep one of the two" .name) -}}{{- end -}}
{{- $known = append $known .name -}}
{{- end -}}
{{- range regexFindAll "\"env:[A-Za-z_][A-Za-z0-9_]*\"" (toJson .Values.config) -1 -}}
{{- $name := trimAll "\"" . | trimPrefix "env:" -}}
{{- if not (or $.Values.extraEnvFrom (has $name $known)) -}}
{{- fail (printf "config names env:%s, and nothing sets it: add secretEnv.%s={name: <Secret>, key: <its key>}" $name $name) -}}
{{- end -}}
{{- end -}}
{{- end }}
